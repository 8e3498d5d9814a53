package objectstate

import (
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func TestPods(t *testing.T) {
	for sentence, c := range map[string]struct {
		node                            string
		phase                           v1.PodPhase
		deleted                         bool
		ended, awaits, occupies, remain bool
	}{
		"it waits":                            {phase: v1.PodPending, awaits: true},
		"it waits, and is being deleted":      {phase: v1.PodPending, deleted: true},
		"it was bound":                        {node: "n", phase: v1.PodPending, occupies: true, remain: true},
		"it runs":                             {node: "n", phase: v1.PodRunning, occupies: true, remain: true},
		"it runs, and is being deleted":       {node: "n", phase: v1.PodRunning, deleted: true, occupies: true},
		"its node is cut off":                 {node: "n", phase: v1.PodUnknown, occupies: true, remain: true},
		"it succeeded":                        {node: "n", phase: v1.PodSucceeded, ended: true},
		"it failed":                           {node: "n", phase: v1.PodFailed, ended: true},
		"it failed before it had a node":      {phase: v1.PodFailed, ended: true},
		"it succeeded, and is being deleted":  {node: "n", phase: v1.PodSucceeded, deleted: true, ended: true},
		"the API server has written no phase": {awaits: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{NodeName: c.node}, Status: v1.PodStatus{Phase: c.phase}}
			if c.deleted {
				pod.DeletionTimestamp = &metav1.Time{}
			}
			got := [4]bool{HasEnded(pod), AwaitsNode(pod), OccupiesNode(pod), StaysOnNode(pod)}
			if want := [4]bool{c.ended, c.awaits, c.occupies, c.remain}; got != want {
				t.Errorf("has ended, awaits, occupies, stays on a node: %v, want %v", got, want)
			}
		})
	}
}

func TestPodConditions(t *testing.T) {
	for sentence, c := range map[string]struct {
		conditions []v1.PodCondition
		waits      string
		evictedBy  string
	}{
		"none":                       {},
		"it was not scheduled":       {conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "Unschedulable"}}, waits: "Unschedulable"},
		"it was scheduled":           {conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, Reason: "r"}}},
		"its eviction has begun":     {conditions: []v1.PodCondition{{Type: v1alpha1.PodEvicting, Status: v1.ConditionTrue, Reason: "profile"}}, evictedBy: "profile"},
		"its eviction was withdrawn": {conditions: []v1.PodCondition{{Type: v1alpha1.PodEvicting, Status: v1.ConditionFalse, Reason: "Withdrawn"}}},
		"another evicts it":          {conditions: []v1.PodCondition{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: "EvictionByEvictionAPI"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			pod, waits := &v1.Pod{Status: v1.PodStatus{Conditions: c.conditions}}, ""
			if said := WaitCondition(pod); said != nil {
				waits = said.Reason
			}
			if waits != c.waits || EvictedBy(pod) != c.evictedBy || IsBeingEvicted(pod) != (c.evictedBy != "") {
				t.Errorf("waits for %q, evicted by %q, want %q and %q", waits, EvictedBy(pod), c.waits, c.evictedBy)
			}
		})
	}
}

func TestNodes(t *testing.T) {
	condition := func(kind v1.NodeConditionType, status v1.ConditionStatus) func(*v1.Node) {
		return func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{Type: kind, Status: status}} }
	}
	taint := func(key string) func(*v1.Node) {
		return func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: key, Effect: v1.TaintEffectNoSchedule}} }
	}
	for sentence, c := range map[string]struct {
		is           func(*v1.Node)
		ready, takes bool
	}{
		"it says nothing":              {is: func(*v1.Node) {}, ready: true, takes: true},
		"it is ready":                  {is: condition(v1.NodeReady, v1.ConditionTrue), ready: true, takes: true},
		"it is not ready":              {is: condition(v1.NodeReady, v1.ConditionFalse)},
		"its kubelet has gone silent":  {is: condition(v1.NodeReady, v1.ConditionUnknown)},
		"it is short of memory":        {is: condition(v1.NodeMemoryPressure, v1.ConditionTrue), ready: true, takes: true},
		"it has the taint not-ready":   {is: taint(v1.TaintNodeNotReady)},
		"it has the taint unreachable": {is: taint(v1.TaintNodeUnreachable)},
		"it has a taint of its own":    {is: taint("dedicated"), ready: true, takes: true},
		"it is cordoned":               {is: func(n *v1.Node) { n.Spec.Unschedulable = true }, ready: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			node := &v1.Node{}
			c.is(node)
			if IsReady(node) != c.ready || TakesPods(node) != c.takes {
				t.Errorf("ready %v, takes pods %v, want %v and %v", IsReady(node), TakesPods(node), c.ready, c.takes)
			}
		})
	}
}

func TestJobs(t *testing.T) {
	for kind, over := range map[batchv1.JobConditionType]bool{
		batchv1.JobComplete: true, batchv1.JobFailed: true, batchv1.JobFailureTarget: true, batchv1.JobSuccessCriteriaMet: true,
		batchv1.JobSuspended: false,
	} {
		for status, is := range map[v1.ConditionStatus]bool{v1.ConditionTrue: true, v1.ConditionFalse: false} {
			job := &batchv1.Job{Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}}
			if got := JobIsOver(job); got != (over && is) {
				t.Errorf("%s is %s: over %v", kind, status, got)
			}
			if got := JobCondition(job, kind) != nil; got != is {
				t.Errorf("%s is %s: found %v", kind, status, got)
			}
		}
	}
}

func TestJobFailsBy(t *testing.T) {
	for sentence, c := range map[string]struct {
		change  func(*batchv1.Job)
		deleted int
		want    bool
	}{
		"up to the default":    {func(*batchv1.Job) {}, 6, false},
		"beyond the default":   {func(*batchv1.Job) {}, 7, true},
		"up to its limit":      {func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32(3)) }, 3, false},
		"beyond its limit":     {func(job *batchv1.Job) { job.Spec.BackoffLimit = new(int32(3)) }, 4, true},
		"others failed before": {func(job *batchv1.Job) { job.Status.Failed = 4 }, 4, true},
		"others have not been counted yet": {func(job *batchv1.Job) {
			job.Status.Failed, job.Status.UncountedTerminatedPods = 2, &batchv1.UncountedTerminatedPods{Failed: []types.UID{"a"}}
		}, 4, true},
		"its policy may ignore evictions": {func(job *batchv1.Job) { job.Spec.PodFailurePolicy = &batchv1.PodFailurePolicy{} }, 9, false},
		"each index has its own limit":    {func(job *batchv1.Job) { job.Spec.BackoffLimitPerIndex = new(int32(0)) }, 9, false},
		"they may succeed while they end": {func(job *batchv1.Job) { job.Spec.PodReplacementPolicy = new(batchv1.Failed) }, 9, false},
		"another controller manages it":   {func(job *batchv1.Job) { job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }, 9, false},
	} {
		job := &batchv1.Job{}
		if c.change(job); JobFailsBy(job, c.deleted) != c.want {
			t.Errorf("%s: fails %v, want %v", sentence, !c.want, c.want)
		}
	}
}

func TestControllingJob(t *testing.T) {
	for sentence, c := range map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"none controls it":           {},
		"a Job does":                 {owners: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Controller: new(true)}}, want: true},
		"a Job only owns it":         {owners: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job"}}},
		"a Job of another API does":  {owners: []metav1.OwnerReference{{APIVersion: "batch.volcano.sh/v1alpha1", Kind: "Job", Controller: new(true)}}},
		"something else of its does": {owners: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "CronJob", Controller: new(true)}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := ControllingJob(&v1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners}}) != nil; got != c.want {
				t.Errorf("a Job controls it: %v", got)
			}
		})
	}
}

func TestWriters(t *testing.T) {
	path := fieldpath.MakePathOrDie("spec", "suspend")
	fields := func(text string) *metav1.FieldsV1 { return metav1.NewFieldsV1(text) }
	const it, other = `{"f:spec":{"f:suspend":{}}}`, `{"f:spec":{"f:parallelism":{}}}`
	for sentence, c := range map[string]struct {
		managers []metav1.ManagedFieldsEntry
		want     []string
	}{
		"nothing is known":       {},
		"one wrote it":           {managers: []metav1.ManagedFieldsEntry{{Manager: "a", FieldsV1: fields(it)}}, want: []string{"a"}},
		"two wrote the same":     {managers: []metav1.ManagedFieldsEntry{{Manager: "a", FieldsV1: fields(it)}, {Manager: "b", FieldsV1: fields(it)}}, want: []string{"a", "b"}},
		"one wrote another":      {managers: []metav1.ManagedFieldsEntry{{Manager: "a", FieldsV1: fields(other)}, {Manager: "b", FieldsV1: fields(it)}}, want: []string{"b"}},
		"what cannot be decoded": {managers: []metav1.ManagedFieldsEntry{{Manager: "a", FieldsV1: fields("{")}, {Manager: "b"}}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := Writers(c.managers, path); !slices.Equal(got, c.want) {
				t.Errorf("written by %v, want %v", got, c.want)
			}
		})
	}
}
