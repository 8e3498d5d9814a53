package gangstate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBackoff(t *testing.T) {
	const s = time.Second
	type pauses []time.Duration
	for sentence, c := range map[string]struct {
		backoff Backoff
		want    pauses // after 1, 2, 3, 4 and a million failures
	}{
		"doubles up to the most":              {Backoff{s, 5 * s}, pauses{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		"the most may be less than the first": {Backoff{2 * s, s}, pauses{s, s, s, s, s}},
		"none stays none":                     {Backoff{0, s}, pauses{0, 0, 0, 0, 0}},
		"a most without end does not overflow": {
			Backoff{1 << 61, 1<<63 - 1}, pauses{1 << 61, 1 << 62, 1<<63 - 1, 1<<63 - 1, 1<<63 - 1},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got pauses
			for _, n := range []int{1, 2, 3, 4, 1000000} {
				got = append(got, c.backoff.after(n))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}
