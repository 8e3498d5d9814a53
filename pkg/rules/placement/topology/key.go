package topology

import "strings"

// ShortKey returns the part of a label key that users say: rack for topology.example.com/rack.
func ShortKey(key string) string {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[i+1:]
	}
	return key
}
