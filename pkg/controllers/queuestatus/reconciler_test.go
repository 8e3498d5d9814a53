package queuestatus

import (
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// stage is a reconciler that notes what it writes.
type stage struct {
	*reconciler
	t       *testing.T
	clock   *testclock.FakeClock
	patches []string
	// slow is how long the API server takes to write.
	slow time.Duration
}

func newStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	s := &stage{t: t, clock: testclock.NewFakeClock(now.Time)}
	c := fakeapi.New(objects...).WithInterceptorFuncs(fakeapi.OnStatusPatch(func(object client.Object, patch string) {
		s.patches = append(s.patches, object.GetName()+": "+patch)
		s.clock.Step(s.slow)
	})).Build()
	s.reconciler = &reconciler{devices: clusterdevices.NewCounts(nil), rules: share.Rules{Stated: true, Weighted: true}, client: c, clock: s.clock, schedulers: map[string]bool{ours: true}}
	return s
}

// step reconciles, and returns what was written and when to come again.
func (s *stage) step() ([]string, time.Duration) {
	s.t.Helper()
	s.patches = nil
	result, err := s.Reconcile(s.t.Context(), reconcile.Request{})
	must.Succeed(s.t, err)
	return s.patches, result.RequeueAfter
}

func TestWritesWhatChanged(t *testing.T) {
	s := newStage(t, queueOf("a"), queueOf("b"), nodeOf("8"), podOf("1", "1", in("a")))
	patches, _ := s.step()
	if len(patches) != 2 || !strings.Contains(patches[1], `"pendingGangs":0,`) || !strings.Contains(patches[1], `"runningGangs":0,`) {
		t.Fatalf("first: patches %q; want two, and 0 said", patches)
	}
	if patches, wait := s.step(); len(patches) > 0 || wait != pause {
		t.Errorf("at once: patches %q, again after %v; want none, %v", patches, wait, pause)
	}
	s.clock.Step(pause)
	if patches, wait := s.step(); len(patches) > 0 || wait != 0 {
		t.Errorf("nothing changed: patches %q, again after %v; want none", patches, wait)
	}
	must.Succeed(t, s.client.Create(t.Context(), podOf("2", "1", in("b"), bound)))
	s.clock.Step(pause)
	if patches, _ := s.step(); len(patches) != 1 || !strings.HasPrefix(patches[0], "b: ") || !strings.Contains(patches[0], `"resourceVersion"`) {
		t.Errorf("a pod more: patches %q; want one of b, on its version", patches)
	}
	must.Succeed(t, s.client.Delete(t.Context(), podOf("2", "1")))
	s.clock.Step(pause)
	if patches, _ := s.step(); len(patches) != 1 || !strings.Contains(patches[0], `"allocated":null`) {
		t.Errorf("it is gone: patches %q; want one that takes away what was allocated", patches)
	}
}

// TestSlowWrites: a slow API server does not make the status rarer.
func TestSlowWrites(t *testing.T) {
	s := newStage(t, queueOf("a"), nodeOf("8"), podOf("1", "1", in("a")))
	s.slow = 10 * time.Second
	s.step()
	must.Succeed(t, s.client.Create(t.Context(), podOf("2", "1", in("a"), bound)))
	if patches, wait := s.step(); len(patches) != 1 {
		t.Errorf("after 10 s: patches %q, again after %v; want one", patches, wait)
	}
}

func TestValidate(t *testing.T) {
	for sentence, tc := range map[string]struct {
		names []string
		valid bool
	}{
		"one":          {[]string{ours}, true},
		"two":          {[]string{ours, "other"}, true},
		"none":         {nil, false},
		"an empty one": {[]string{ours, ""}, false},
	} {
		if err := (Options{SchedulerNames: tc.names}).validate(); (err == nil) != tc.valid {
			t.Errorf("%s: %v, want valid %t", sentence, err, tc.valid)
		}
	}
}
