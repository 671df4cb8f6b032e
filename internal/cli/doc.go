// Package cli holds the parts that binaries with subcommands share: a Program runs
// its commands and explains them, and EachLine reads the lines of commands that
// take JSON lines. It has no state.
package cli
