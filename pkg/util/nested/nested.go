// Package nested writes to maps of maps, none of which stays empty.
package nested

// Set sets an entry of an inner map, which is made if it is not there.
func Set[M ~map[K]N, N ~map[L]V, K, L comparable, V any](m M, outer K, inner L, value V) {
	if m[outer] == nil {
		m[outer] = N{}
	}
	m[outer][inner] = value
}

// Delete removes an entry of an inner map, and that map if it has no other.
func Delete[M ~map[K]N, N ~map[L]V, K, L comparable, V any](m M, outer K, inner L) {
	if delete(m[outer], inner); len(m[outer]) == 0 {
		delete(m, outer)
	}
}
