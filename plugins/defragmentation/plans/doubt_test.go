package plans

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// TestPassing: what is said of a goal is believed once it was said long enough, each time that it was looked.
func TestPassing(t *testing.T) {
	r := &reconciler{doubts: map[types.UID]doubt{}}
	p := &v1alpha1.DefragmentationPlan{ObjectMeta: metav1.ObjectMeta{UID: "p"}}
	begin := time.Now()
	for _, step := range []struct {
		after time.Duration
		why   string
		want  bool
	}{
		{0, "full", true},
		{8 * time.Second, "full", true},
		{12 * time.Second, "", false}, // it was wrong
		{14 * time.Second, "full", true},
		{22 * time.Second, "full", true},
		{28 * time.Second, "full", true},
		{30 * time.Second, "closed", false}, // whatever it is
		{32 * time.Second, "closed", false},
		{60 * time.Second, "full", true}, // nobody knows how it was meanwhile
	} {
		if got := r.passing(p, step.why, begin.Add(step.after)); got != step.want {
			t.Errorf("after %s: %t", step.after, got)
		}
	}
	if r.passing(p, "", begin); len(r.doubts) > 0 {
		t.Errorf("it is remembered: %v", r.doubts)
	}
}
