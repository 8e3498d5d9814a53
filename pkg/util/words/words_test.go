package words

import "testing"

// TestClip: a text that is cut has at most so many bytes, and no part of a character.
func TestClip(t *testing.T) {
	for text, want := range map[string]string{"": "", "12345678": "12345678", "123456789": "12345...", "1234ä678": "1234..."} {
		if got := Clip(text, 8); got != want {
			t.Errorf("%q is cut to %q, want %q", text, got, want)
		}
	}
}
