// Package cli holds the parts that binaries with subcommands share: a Program runs
// its commands and explains them. It has no state.
package cli
