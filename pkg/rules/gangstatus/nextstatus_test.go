package gangstatus

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/test/helpers/members"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

var (
	epoch, key  = members.Epoch, members.Key
	pods, group = members.Pods, members.PodGroup
	with        = members.With
)

func statusAfter(pg *coscheduling.PodGroup, pods []*v1.Pod) coscheduling.PodGroupStatus {
	return Next(pg, FactsOf(key, gangspec.ReadPodGroup(pg, &pg.Spec), pods, &gangstate.History{}), metav1.NewTime(epoch))
}

func TestPhase(t *testing.T) {
	const (
		pending    = schedulingv1alpha1.PodGroupPending
		scheduling = schedulingv1alpha1.PodGroupScheduling
		running    = schedulingv1alpha1.PodGroupRunning
		unknown    = schedulingv1alpha1.PodGroupUnknown
		finished   = schedulingv1alpha1.PodGroupFinished
		failed     = schedulingv1alpha1.PodGroupFailed
	)
	for name, tc := range map[string]struct {
		was  schedulingv1alpha1.PodGroupPhase
		min  int32
		pods []*v1.Pod
		want schedulingv1alpha1.PodGroupPhase
	}{
		"no pods":                               {"", 2, nil, pending},
		"no minimum":                            {"", 0, pods("running"), pending},
		"members are missing":                   {pending, 3, pods("waiting", "waiting"), pending},
		"a gate keeps a member back":            {pending, 2, pods("waiting", "gated"), pending},
		"a claim of a member is not made yet":   {pending, 2, pods("waiting", "claimless"), pending},
		"the minimum waits":                     {pending, 2, pods("waiting", "waiting"), PreScheduling},
		"there is no room":                      {PreScheduling, 2, pods("waiting", "refused"), pending},
		"the wait time ran out":                 {PreScheduling, 2, pods("expired", "expired"), pending},
		"a part is bound":                       {PreScheduling, 3, pods("bound", "bound", "waiting"), scheduling},
		"a part is bound after a refusal":       {pending, 3, pods("bound", "bound", "refused"), scheduling},
		"the minimum is bound":                  {scheduling, 2, pods("bound", "running"), Scheduled},
		"the minimum runs":                      {Scheduled, 2, pods("running", "running"), running},
		"the minimum runs, more wait":           {running, 2, pods("running", "running", "refused"), running},
		"a running member is gone":              {running, 3, pods("running", "running"), unknown},
		"its successor waits":                   {unknown, 3, pods("running", "running", "waiting"), unknown},
		"its successor came at once":            {running, 3, pods("running", "running", "waiting"), unknown},
		"the successor is bound":                {unknown, 3, pods("running", "running", "bound"), Scheduled},
		"some succeeded, the rest run":          {running, 3, pods("succeeded", "running", "running"), running},
		"the minimum succeeded, more run":       {running, 2, pods("succeeded", "succeeded", "running"), running},
		"all succeeded":                         {running, 2, pods("succeeded", "succeeded"), finished},
		"all of one succeeded, one extra fails": {running, 2, pods("succeeded", "succeeded", "failed"), finished},
		"one of the minimum failed":             {running, 3, pods("running", "running", "failed"), failed},
		"all failed":                            {failed, 2, pods("failed", "failed"), failed},
		"a failed one has a successor":          {failed, 3, pods("running", "running", "failed", "waiting"), unknown},
		"the successor of a failed one runs":    {unknown, 3, pods("running", "running", "failed", "running"), running},
		"a kubelet refused one":                 {running, 3, pods("running", "running", "refused by kubelet"), unknown},
		"kubelets refused all":                  {Scheduled, 2, pods("refused by kubelet", "refused by kubelet"), pending},
		"one was refused, another failed":       {running, 3, pods("running", "failed", "refused by kubelet"), failed},
		"the successor of a refused one runs":   {unknown, 2, pods("running", "refused by kubelet", "running"), running},
		"an extra member failed":                {running, 2, pods("running", "running", "failed"), running},
		"one failed before all were there":      {pending, 3, pods("failed", "waiting"), pending},
		"finished, and cleaned up":              {finished, 2, nil, finished},
		"failed, and cleaned up":                {failed, 2, nil, failed},
		"finished, and used again":              {finished, 2, pods("waiting"), pending},
		"all pods of a running gang are gone":   {running, 2, nil, pending},
		"pods on their way out count for nothing": {running, 2, with(pods("running", "running", "failed"), func(i int, p *v1.Pod) {
			if i > 0 {
				p.DeletionTimestamp = ptr.To(metav1.NewTime(epoch))
			}
		}), unknown},
	} {
		t.Run(name, func(t *testing.T) {
			pg := group(tc.min, tc.was)
			if over(tc.was) { // with the numbers it ended with
				pg.Status.Succeeded, pg.Status.Failed = 2, 0
				if tc.was == failed {
					pg.Status.Succeeded, pg.Status.Failed = 0, 1
				}
			}
			if got := statusAfter(pg, tc.pods).Phase; got != tc.want {
				t.Errorf("phase %q, want %q", got, tc.want)
			}
			if got := Of(key, pg, nil, tc.pods).Phase; got != tc.want {
				t.Errorf("phase of its standing %q, want %q", got, tc.want)
			}
		})
	}
}

func TestNumbers(t *testing.T) {
	type numbers struct{ Running, Succeeded, Failed int32 }
	owner := func(uid types.UID) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: "Job", Name: string(uid), UID: uid, Controller: ptr.To(true)}}
	}
	for name, tc := range map[string]struct {
		was  numbers
		over bool
		pods []*v1.Pod
		want numbers
	}{
		"each phase":             {pods: pods("waiting", "bound", "running", "running", "succeeded", "failed"), want: numbers{2, 1, 1}},
		"a pod that comes twice": {pods: append(pods("running", "failed"), pods("running", "failed")...), want: numbers{1, 0, 1}},
		"one name, two UIDs": {pods: with(pods("failed", "running"), func(_ int, p *v1.Pod) { p.Name = "train-0" }),
			want: numbers{1, 0, 1}},
		"cleaned up": {was: numbers{0, 2, 1}, over: true, pods: pods("succeeded"), want: numbers{0, 2, 1}},
		"a job that is run again": {pods: with(pods("succeeded", "failed", "running", "waiting"), func(i int, p *v1.Pod) {
			p.OwnerReferences = owner([]types.UID{"first", "first", "second", "second"}[i])
		}), want: numbers{1, 0, 0}},
		"jobs side by side": {pods: with(pods("succeeded", "running"), func(i int, p *v1.Pod) {
			p.OwnerReferences = owner([]types.UID{"workers", "servers"}[i])
			if i == 0 {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{
					Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(epoch.Add(time.Hour))}}}}
			}
		}), want: numbers{1, 1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			pg := group(2, schedulingv1alpha1.PodGroupRunning)
			if tc.over {
				pg.Status.Phase = schedulingv1alpha1.PodGroupFinished
			}
			pg.Status.Running, pg.Status.Succeeded, pg.Status.Failed = tc.was.Running, tc.was.Succeeded, tc.was.Failed
			got := statusAfter(pg, tc.pods)
			if diff := cmp.Diff(tc.want, numbers{got.Running, got.Succeeded, got.Failed}); diff != "" {
				t.Errorf("numbers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMinimumOfAnnotationsWins(t *testing.T) {
	pg := group(8, "")
	members := with(pods("waiting", "waiting"), func(i int, p *v1.Pod) {
		p.Annotations[v1alpha1.MinAvailableAnnotation] = []string{"many", "2"}[i] // the first is unusable
	})
	if got := statusAfter(pg, members).Phase; got != PreScheduling {
		t.Errorf("phase %q, want %q", got, PreScheduling)
	}
}

func TestStart(t *testing.T) {
	before := metav1.NewTime(epoch.Add(-time.Hour))
	for name, tc := range map[string]struct {
		was   schedulingv1alpha1.PodGroupPhase
		start metav1.Time
		pods  []*v1.Pod
		want  metav1.Time
	}{
		"not before the gang is complete": {was: "Pending", pods: pods("waiting")},
		"when it is":                      {was: "Pending", pods: pods("waiting", "waiting"), want: metav1.NewTime(epoch)},
		"once":                            {was: "Running", start: before, pods: pods("running", "running"), want: before},
		"kept while there is no room":     {was: "Pending", start: before, pods: pods("refused", "refused"), want: before},
		"forgotten without pods":          {was: "Running", start: before},
		"kept after the end":              {was: "Finished", start: before, want: before},
		"anew after an end":               {was: "Finished", start: before, pods: pods("waiting", "waiting"), want: metav1.NewTime(epoch)},
	} {
		t.Run(name, func(t *testing.T) {
			pg := group(2, tc.was)
			pg.Status.ScheduleStartTime = tc.start
			if tc.was == schedulingv1alpha1.PodGroupFinished {
				pg.Status.Succeeded = 2
			}
			if got := statusAfter(pg, tc.pods).ScheduleStartTime; !got.Equal(&tc.want) {
				t.Errorf("start %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOccupiedBy(t *testing.T) {
	owned := with(pods("waiting", "waiting"), func(i int, p *v1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{
			{Kind: "Other", Name: "other"},
			{Kind: "Job", Name: fmt.Sprintf("job-%d", i), UID: "u", Controller: ptr.To(true)},
		}
	})
	pg := group(2, "")
	if got := statusAfter(pg, owned).OccupiedBy; got != "team/job-0" {
		t.Errorf("occupied by %q, want team/job-0", got)
	}
	pg.Status.OccupiedBy = "team/somebody"
	if got := statusAfter(pg, owned).OccupiedBy; got != "team/somebody" {
		t.Errorf("occupied by %q, want what stands", got)
	}
}

// A written status needs no further write, whatever it is.
func TestSettles(t *testing.T) {
	words := []string{"waiting", "gated", "claimless", "impossible", "refused", "expired", "bound", "running", "succeeded", "failed"}
	var sets [][]*v1.Pod
	for _, a := range words {
		for _, b := range words {
			sets = append(sets, pods(a), pods(a, b), pods(a, b, b))
		}
	}
	for _, was := range []schedulingv1alpha1.PodGroupPhase{"", "Pending", "Running", "Finished", "Failed", "Unknown", "nonsense"} {
		for _, set := range sets {
			pg := group(2, was)
			pg.Status = statusAfter(pg, set)
			// It comes back as the API server keeps it.
			data, err := json.Marshal(pg)
			must.Succeed(t, err)
			stored := &coscheduling.PodGroup{}
			if err := json.Unmarshal(data, stored); err != nil {
				t.Fatal(err)
			}
			again := Next(stored, FactsOf(key, gangspec.ReadPodGroup(stored, &stored.Spec), set, &gangstate.History{}), metav1.NewTime(epoch.Add(time.Hour)))
			if fields := Changes(stored.Status, again); len(fields) > 0 {
				t.Errorf("from %q with %v: a second write of %v", was, phases(set), fields)
			}
		}
	}
}

func TestFirstWriteSaysZero(t *testing.T) {
	pg := group(2, "")
	fields := Changes(pg.Status, statusAfter(pg, pods("running")))
	want := map[string]any{"running": int32(1), "succeeded": int32(0), "failed": int32(0)}
	for name, n := range want {
		if fields[name] != n {
			t.Errorf("%s is written as %v, want %v", name, fields[name], n)
		}
	}
}

func phases(list []*v1.Pod) (out []v1.PodPhase) {
	for _, p := range list {
		out = append(out, p.Status.Phase)
	}
	return out
}
