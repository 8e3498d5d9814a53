// Package bools orders truth values.
package bools

// Compare orders false before true.
func Compare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	default:
		return 1
	}
}
