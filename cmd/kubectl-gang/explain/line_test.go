package explain

import (
	"testing"

	"github.com/lockstep-sh/lockstep/pkg/scheduler"
)

func TestLineWords(t *testing.T) {
	for want, line := range map[string]scheduler.Line{
		"Among those of queue a that are complete and would still wait it is 1st of 7\n":                           {Queue: "a", At: 1, Of: 7, First: "gang x/me"},
		"Among those of queue a that are complete and would still wait it is 3rd of 7; gang x/first comes first\n": {Queue: "a", At: 3, Of: 7, First: "gang x/first"},
		"Among the gangs that are complete and would still wait it is 2nd of 2; gang x/first comes first\n":        {At: 2, Of: 2, First: "gang x/first"},
	} {
		if got := lineWords(&line); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 102: "102nd", 111: "111th"} {
		if got := ordinal(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
}
