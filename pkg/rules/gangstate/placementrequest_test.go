package gangstate

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// TestPlaceOfPodsMadeAgain: pods that are made again have the place of those before them, as long as the gang is known.
func TestPlaceOfPodsMadeAgain(t *testing.T) {
	key := gangspec.Key{Namespace: "a", Name: "x"}
	old, fresh := podOf("old", of("x"), aged(time.Hour)), podOf("fresh", of("x"))
	for sentence, c := range map[string]struct {
		group time.Time
		pods  []*v1.Pod
		want  time.Time
	}{
		"its PodGroup came first":        {start.Add(-2 * time.Hour), []*v1.Pod{old, fresh}, start.Add(-2 * time.Hour)},
		"its first pod did":              {start.Add(-time.Minute), []*v1.Pod{old, fresh}, start.Add(-time.Hour)},
		"before this process began both": {start.Add(-time.Minute), []*v1.Pod{fresh}, start.Add(-time.Minute)},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newOpen(gangspec.Defaults{}, Backoff{})
			s.Describe(gangspec.Community, key, &gangspec.PodGroupDescription{Created: c.group, Min: 1}, start)
			for i, pod := range c.pods {
				s.ObservePod(pod, start)
				if i < len(c.pods)-1 {
					s.PodEnded(pod.UID, start)
				}
			}
			if want, ok := s.Wants(fresh); !ok || !want.Created.Equal(c.want) {
				t.Errorf("it came %v before, want %v", start.Sub(want.Created), start.Sub(c.want))
			}
		})
	}
}
