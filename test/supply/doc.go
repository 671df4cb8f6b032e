// Package supply holds no code: its tests keep to what is known of packages that come
// from elsewhere, their hashes and their vulnerabilities.
package supply
