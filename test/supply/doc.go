// Package supply holds no code: its tests compare the packages that come from elsewhere
// with their recorded hashes and vulnerabilities.
package supply
