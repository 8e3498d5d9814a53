package explain

import "testing"

func TestSuggest(t *testing.T) {
	names := []string{"eval", "pretrain", "job.train"}
	for name, want := range map[string]string{
		"pretrian": `: did you mean "pretrain"?`,
		"eva":      `: did you mean "eval"?`,
		"train":    `: did you mean "pretrain"?`,
		"nothing":  "",
	} {
		if got := suggest(name, names); got != want {
			t.Errorf("of %q it says %q, want %q", name, got, want)
		}
	}
	if got := suggest("x", nil); got != "" {
		t.Errorf("of nothing it says %q", got)
	}
}
