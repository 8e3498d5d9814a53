package preemption

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	pgfake "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/fake"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/evictions"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/planner"
	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestSuccessors: whoever makes the pods of an evicted gang again is named, and how long that takes.
func TestSuccessors(t *testing.T) {
	by := func(apiVersion, kind string, labels map[string]string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: apiVersion, Kind: kind, Name: "train", Controller: new(true)}}}}
	}
	for want, c := range map[string]struct {
		pod       *v1.Pod
		suspended bool
		fails     bool
	}{
		"its pods have no controller that makes them again":          {pod: &v1.Pod{}},
		`Job "train" is suspended, and makes its pods again once`:    {pod: by("batch/v1", "Job", nil), suspended: true},
		`Job "train" makes its pods again after a pause of up to 10`: {pod: by("batch/v1", "Job", nil)},
		`Job "train" fails by this, since its evicted pods count as`: {pod: by("batch/v1", "Job", nil), fails: true},
		`JobSet "all" makes its pods again at once if one of its Jobs`: {
			pod: by("batch/v1", "Job", map[string]string{v1alpha1.JobSetNameLabel: "all"})},
		`PyTorchJob "train" makes its pods again`: {pod: by("kubeflow.org/v1", "PyTorchJob", nil)},
	} {
		if got := successors(c.pod, c.suspended, c.fails); !strings.HasPrefix(got, want) {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}

// TestRecordedEvictions: when and for whom a gang goes is recorded on its PodGroup, and on the event about its Job,
// where there are no queues, too, and no more if it was not evicted after all. What it has is recorded only if a
// controller makes its pods again.
func TestRecordedEvictions(t *testing.T) {
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: new(true)}
	for sentence, c := range map[string]struct {
		queue  queuesFor
		owners []metav1.OwnerReference
		kind   gangspec.Kind
		want   evictionrecord.Record
	}{
		"there are no queues":          {"", []metav1.OwnerReference{job}, gangspec.Community, evictionrecord.Record{Job: "train"}},
		"it is in a queue":             {"a", []metav1.OwnerReference{job}, gangspec.Community, evictionrecord.Record{Job: "train", Demand: evictionrecord.Demand{Queue: "a"}}},
		"nothing makes its pods again": {"a", nil, gangspec.Community, evictionrecord.Record{}},
		"its PodGroup is native":       {"", []metav1.OwnerReference{job}, gangspec.Native, evictionrecord.Record{Job: "train"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := members("v", 2, 2, 10, 1, "n0")
			key := gangspec.Key{Namespace: pods[0].Namespace, Name: "v"}
			gang := gangstate.RunningGang{Key: key, Min: 2, Object: gangspec.Ref{Kind: c.kind, UID: "v"}}
			for _, pod := range pods {
				pod.OwnerReferences = c.owners
				gang.Running = append(gang.Running, gangstate.Placed{Pod: pod, Node: "n0"})
			}
			s := newStage(t, nil, nil)
			s.Queues = c.queue
			groups := pgfake.NewSimpleClientset(&schedulingv1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "v", UID: "v"}})
			s.groups = groups
			d := s.demand(t, gangspec.Spec{}, members("p", 2, 2, 100, 1)...)
			p := s.decision(d)
			want := evictionrecord.New(s.clock.Now(), d.String())
			want.Gang, want.Job, want.Demand = key.String(), c.want.Job, c.want.Demand
			got := s.execution(d, nil).recordEvictions(s.ctx, p, []gangstate.RunningGang{gang})[key]
			if want.At = got.At; got.At.IsZero() || !cmp.Equal(want, got) {
				t.Errorf("it is recorded as\n%s, want\n%s", got.Annotation(), want.Annotation())
			}
			recorded := func() string {
				pg, err := groups.SchedulingV1alpha1().PodGroups(key.Namespace).Get(t.Context(), "v", metav1.GetOptions{})
				must.Succeed(t, err)
				return pg.Annotations[v1alpha1.EvictedAnnotation]
			}
			if value := recorded(); c.kind == gangspec.Community && value != want.Annotation() || c.kind == gangspec.Native && value != "" {
				t.Errorf("its PodGroup has %q", value)
			}
			s.execution(d, nil).dropRecords(s.ctx, []gangstate.RunningGang{gang})
			if value := recorded(); value != "" {
				t.Errorf("when it was not evicted after all, its PodGroup has %q", value)
			}
			if value := evicted(p, key.Namespace, &job, got, "in words").Annotations[v1alpha1.EvictedAnnotation]; value != want.Annotation() {
				t.Errorf("the event has %q", value)
			}
		})
	}
}

// TestFailingJobs: a Job is known to fail if more members of its gang are deleted than its limit allows.
func TestFailingJobs(t *testing.T) {
	for sentence, c := range map[string]struct {
		limit   int32
		changed func(*v1.Pod)
		want    bool
	}{
		"all count":                       {limit: 1, want: true},
		"its limit is not reached":        {limit: 2},
		"its JobSet makes it again":       {limit: 1, changed: func(p *v1.Pod) { p.Labels = map[string]string{v1alpha1.JobSetNameLabel: "all"} }},
		"it was made anew under its name": {limit: 1, changed: func(p *v1.Pod) { p.OwnerReferences[0].UID = "old" }},
		"it is gone":                      {limit: 1, changed: func(p *v1.Pod) { p.OwnerReferences[0].Name = "gone" }},
	} {
		t.Run(sentence, func(t *testing.T) {
			pods := members("v", 2, 2, 10, 1, "n0")
			gang := gangstate.RunningGang{Key: gangspec.Key{Namespace: "default", Name: "v"}, Min: 2}
			for _, pod := range pods {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: "train", UID: "train", Controller: new(true)}}
				if c.changed != nil {
					c.changed(pod)
				}
				gang.Running = append(gang.Running, gangstate.Placed{Pod: pod, Node: "n0"})
			}
			job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: pods[0].Namespace, Name: "train", UID: "train"}, Spec: batchv1.JobSpec{BackoffLimit: &c.limit}}
			s := newStage(t, nil, nil, job)
			failing := s.execution(nil, nil).failingJobs(s.ctx, []gangstate.RunningGang{gang}, &evictions.LeftToOwner{})
			if got := failing[pods[0].OwnerReferences[0].UID]; got != c.want {
				t.Errorf("it fails: %v, want %v", got, c.want)
			}
		})
	}
}

// TestOneLossOfAGang: of a gang that goes whole neither events nor counts tell its surplus, which goes first, apart.
func TestOneLossOfAGang(t *testing.T) {
	pods := func(names ...string) (list []victim.Pod) {
		for _, name := range names {
			list = append(list, victim.Pod{UID: types.UID(name)})
		}
		return list
	}
	gang := func(id string, least int, names ...string) *victim.Gang {
		return &victim.Gang{ID: id, Min: least, Pods: pods(names...)}
	}
	elastic, whole, single := gang("elastic", 2, "a", "b", "c"), gang("whole", 2, "d", "e", "f", "g"), gang("single", 1, "h")
	f := &found{plan: &planner.Plan{}, round: extensionpoints.Round{Done: "preempted"}, domain: "2 of 4 nodes", selection: victim.Selection{Bundles: []victim.Bundle{
		{Kind: victim.Safe, Gang: elastic, Pods: pods("c")}, {Kind: victim.Safe, Gang: whole, Pods: pods("f", "g")},
		{Kind: victim.Whole, Gang: whole, Pods: pods("d", "e")}, {Kind: victim.Whole, Gang: single, Pods: pods("h")},
	}}, gangs: map[string]evictions.Candidate{}}
	for _, id := range []string{"elastic", "whole"} {
		f.gangs[id] = evictions.Candidate{Gangs: []gangstate.RunningGang{{Key: gangspec.Key{Namespace: "default", Name: id}}}}
	}
	s := newStage(t, nil, nil)
	d := s.demand(t, gangspec.Spec{}, members("p", 1, 1, 100, 8)...)
	if got, want := preempting(d, f, "").Note, ": 1 whole gang, 1 single pod, surplus pods of 1 gang"; !strings.HasSuffix(got, want) {
		t.Errorf("the event on the preemptor says %q, want %q", got, want)
	}
	if got := len(f.losses()); got != 3 {
		t.Errorf("%d gangs and pods lose something, want 3", got)
	}
	for uid, want := range map[types.UID]string{
		"c": "1 of 3 pods, beyond the minimum of 2, preempted", "f": "all 4 pods, minimum 2, preempted", "d": "all 4 pods, minimum 2, preempted",
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid}}
		losses := f.losses()
		of := slices.IndexFunc(losses, func(l loss) bool { return l.has(uid) })
		if got := losses[of].eventNote(&evictions.Preemption{Preemptor: "p"}, pod); !strings.Contains(got, ": "+want+" by p") {
			t.Errorf("the event on pod %s says %q, want %q", uid, got, want)
		}
	}
}
