// Package layout holds no code: its test keeps the direction of imports.
package layout
