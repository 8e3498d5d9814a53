// Package words puts values into words.
package words

import (
	"fmt"
	"strings"
)

// Count returns how many there are of a regular noun: 1 node, 2 nodes.
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Clip cuts a text to at most that many bytes, of which the last three are dots then.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-3], "") + "..."
}

// FirstOf names the first n of a list: a, b and 2 more.
func FirstOf(n int, list []string) string {
	text := strings.Join(list[:min(n, len(list))], ", ")
	if more := len(list) - n; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
