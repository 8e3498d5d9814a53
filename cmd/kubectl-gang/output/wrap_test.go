package output

import "testing"

func TestWrap(t *testing.T) {
	for text, want := range map[string]string{
		"short":                  "short\n",
		"one two three four":     "one two\n  three four\n",
		"  in one two three":     "  in one two\n    three\n",
		"averyveryverylong word": "averyveryverylong\n  word\n",
		"":                       "\n",
	} {
		if got := wrap(text, 12); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}
