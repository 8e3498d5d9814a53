package gangstatus

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// TestHistory: as for the scheduler, a life goes on when the controllers of pods that ended
// make new pods, and what succeeded in it counts when its pods are deleted, too.
func TestHistory(t *testing.T) {
	of := func(job string, list []*v1.Pod) []*v1.Pod {
		return with(list, func(_ int, p *v1.Pod) {
			p.UID = types.UID(job + string(p.UID))
			p.OwnerReferences = []metav1.OwnerReference{{Name: job, UID: types.UID(job), Controller: new(true)}}
			if p.Status.Phase == v1.PodSucceeded {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.NewTime(epoch.Add(time.Hour))}}}}
			}
		})
	}
	late := func(list []*v1.Pod) []*v1.Pod {
		return with(list, func(_ int, p *v1.Pod) {
			p.UID = "late-" + p.UID
			p.CreationTimestamp = metav1.NewTime(epoch.Add(2 * time.Hour))
		})
	}
	edit := func(list []*v1.Pod, change func(*v1.Pod)) []*v1.Pod {
		edited := make([]*v1.Pod, len(list))
		for i, p := range list {
			edited[i] = p.DeepCopy()
			change(edited[i])
		}
		return edited
	}
	deleted := func(p *v1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(epoch.Add(time.Minute))) }
	byJob := func(p *v1.Pod) {
		p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.Finalizers = "batch/v1", "Job", []string{"batch.kubernetes.io/job-tracking"}
	}
	attempt := func(n string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Labels["jobset.sigs.k8s.io/jobset-uid"], p.Labels["jobset.sigs.k8s.io/restart-attempt"] = "s", n
		}
	}
	done, rest := of("a", pods("succeeded", "succeeded")), of("b", pods("running", "running"))
	all := slices.Concat(done, rest)
	for sentence, c := range map[string]struct {
		seen      [][]*v1.Pod
		madeFor   types.UID
		succeeded int32
		members   int
		// forgets: no pod is left by which another process could tell that the incarnation goes on.
		forgets bool
	}{
		"the rest ends together and is made anew": {
			seen:      [][]*v1.Pod{all, done, slices.Concat(done, late(of("b", pods("waiting", "waiting"))))},
			succeeded: 2, members: 4, forgets: true,
		},
		"what is done is deleted while the rest runs": {seen: [][]*v1.Pod{all, rest}, succeeded: 2, members: 4},
		"what is done is deleted, and lockstep-controller counts it off the minimum": {
			seen: [][]*v1.Pod{all, rest}, madeFor: "a", succeeded: 0, members: 2,
		},
		"another run": {
			seen:      [][]*v1.Pod{all, rest, nil, late(of("c", pods("waiting", "waiting")))},
			succeeded: 0, members: 2,
		},
		"what ran to success is being deleted": {
			seen: [][]*v1.Pod{all, slices.Concat(edit(done, deleted), rest)}, succeeded: 2, members: 4,
		},
		"pods end because they are being deleted": {seen: [][]*v1.Pod{rest, slices.Concat(edit(done, deleted), rest)}, members: 2},
		"those of a Job do, and it makes no others": {
			seen: [][]*v1.Pod{rest, slices.Concat(edit(edit(done, deleted), byJob), rest)}, succeeded: 2, members: 4,
		},
		"what succeeds is of the last attempt": {
			seen: [][]*v1.Pod{slices.Concat(edit(done, attempt("0")), edit(rest, attempt("1")))}, members: 2,
		},
		"nothing is left": {seen: [][]*v1.Pod{all, rest, nil}},
	} {
		t.Run(sentence, func(t *testing.T) {
			history, f := &gangstate.History{}, StatusFacts{}
			pg := group(4, "")
			if c.madeFor != "" {
				pg.Labels = map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController}
				pg.OwnerReferences = []metav1.OwnerReference{{UID: c.madeFor, Controller: new(true)}}
			}
			object := gangspec.ReadPodGroup(pg, &pg.Spec)
			var last []*v1.Pod
			for _, last = range c.seen {
				f = FactsOf(key, object, last, history)
				pg.Status = Next(pg, f, metav1.NewTime(epoch))
			}
			if after := Next(pg, FactsOf(key, object, last, Resume(pg, last)), metav1.NewTime(epoch)); !c.forgets && (after.Succeeded != pg.Status.Succeeded || after.Phase != pg.Status.Phase) {
				t.Errorf("another process counts %d that succeeded in phase %q, want %d in %q", after.Succeeded, after.Phase, pg.Status.Succeeded, pg.Status.Phase)
			}
			if f.Succeeded != int(c.succeeded) || f.Members.N != c.members {
				t.Errorf("%d succeeded, %d members, want %d and %d", f.Succeeded, f.Members.N, c.succeeded, c.members)
			}
			type numbers struct {
				members, bound, running, succeeded, failed int
				phase                                      schedulingv1alpha1.PodGroupPhase
			}
			is := Of(key, pg, nil, last)
			read := numbers{is.Members, is.Bound, is.Running, is.Succeeded, is.Failed, is.Phase}
			written := numbers{f.Members.N, f.Bound.N, int(pg.Status.Running), int(pg.Status.Succeeded), int(pg.Status.Failed), pg.Status.Phase}
			if read != written {
				t.Errorf("a reader, who has seen nothing before, reads %+v, and its status says %+v", read, written)
			}
		})
	}
}
