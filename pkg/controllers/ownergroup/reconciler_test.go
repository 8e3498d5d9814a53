package ownergroup

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/pkg/framework/cachetransform"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// stage is a reconciler over objects.
type stage struct {
	*testing.T
	*reconciler
	events *events.FakeRecorder
}

func newStage(t *testing.T, objects ...string) *stage {
	t.Helper()
	b := fakeapi.New().WithIndex(&v1.Pod{}, podIndex, byOwner.Index)
	for _, text := range objects {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatalf("reading %s: %v", text, err)
		}
		u.SetNamespace("ns")
		if u.GetKind() != "Pod" {
			b = b.WithObjects(u)
			continue
		}
		pod := &v1.Pod{}
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, pod))
		b = b.WithObjects(pod)
	}
	c, recorder := b.Build(), events.NewFakeRecorder(10)
	r := &reconciler{client: c, cache: c, recorder: recorder, watches: map[gangspec.OwnerKind]*crds.OnDemand{}}
	for kind := range ownedpodgroup.Kinds {
		r.watches[kind] = &crds.OnDemand{}
	}
	return &stage{t, r, recorder}
}

// reconcile reconciles a gang, and returns its PodGroup then; nil for no PodGroup.
func (s *stage) reconcile(name string) *coscheduling.PodGroup {
	s.Helper()
	key := client.ObjectKey{Namespace: "ns", Name: name}
	if _, err := s.Reconcile(s.Context(), reconcile.Request{NamespacedName: key}); err != nil {
		s.Fatal(err)
	}
	group := &coscheduling.PodGroup{}
	err := s.client.Get(s.Context(), key, group)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must.Succeed(s, err)
	return group
}

const (
	twoGroups = `{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: serve, uid: u}, spec: {replicas: 2, leaderWorkerTemplate: {size: 3}}}`
	groupOne  = `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: lws.serve.1, ownerReferences: [{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: serve, uid: u, controller: true}], labels: {app.kubernetes.io/managed-by: lockstep-controller, leaderworkerset.sigs.k8s.io/name: serve, leaderworkerset.sigs.k8s.io/group-index: "1"}}, spec: {minMember: 3}}`
	groupTwo  = `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: lws.serve.2, ownerReferences: [{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, name: serve, uid: u, controller: true}], labels: {app.kubernetes.io/managed-by: lockstep-controller, leaderworkerset.sigs.k8s.io/name: serve, leaderworkerset.sigs.k8s.io/group-index: "2"}}}`
	foreign   = `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: lws.serve.2, labels: {leaderworkerset.sigs.k8s.io/name: serve, leaderworkerset.sigs.k8s.io/group-index: "2"}}, spec: {minMember: 7}}`
	orphan    = `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: lws.serve.1, labels: {app.kubernetes.io/managed-by: lockstep-controller, leaderworkerset.sigs.k8s.io/name: serve, leaderworkerset.sigs.k8s.io/group-index: "1"}}, spec: {minMember: 3}}`
	podOfTwo  = `{apiVersion: v1, kind: Pod, metadata: {name: serve-2, annotations: {scheduling.lockstep.dev/gang: Owner, leaderworkerset.sigs.k8s.io/size: "4"}, labels: {leaderworkerset.sigs.k8s.io/name: serve, leaderworkerset.sigs.k8s.io/group-index: "2", leaderworkerset.sigs.k8s.io/worker-index: "0"}}}`
)

func TestGroupsOfLeaderWorkerSet(t *testing.T) {
	for sentence, c := range map[string]struct {
		objects []string
		name    string
		// want is the minimum of the PodGroup; -1 for no PodGroup.
		want int32
	}{
		"a group that is scaled away and has no pods loses its PodGroup": {[]string{twoGroups, groupTwo}, "lws.serve.2", -1},
		"one that is scaled away and has pods keeps it":                  {[]string{twoGroups, groupTwo, podOfTwo}, "lws.serve.2", 4},
		"one whose pods are gone keeps it, with no minimum":              {[]string{twoGroups, groupOne}, "lws.serve.1", 0},
		"one that its owner left alone goes when its pods are gone":      {[]string{orphan}, "lws.serve.1", -1},
		"where the set is gone Kubernetes deletes it":                    {[]string{groupTwo}, "lws.serve.2", 0},
		"somebody else's is never deleted":                               {[]string{twoGroups, foreign}, "lws.serve.2", 7},
		"nor changed":                                                    {[]string{twoGroups, foreign, podOfTwo}, "lws.serve.2", 7},
		"it is made where there is none":                                 {[]string{twoGroups, podOfTwo}, "lws.serve.2", 4},
		"not before its owner is seen":                                   {[]string{podOfTwo}, "lws.serve.2", -1},
	} {
		t.Run(sentence, func(t *testing.T) {
			got := int32(-1)
			if group := newStage(t, c.objects...).reconcile(c.name); group != nil {
				got = group.Spec.MinMember
			}
			if got != c.want {
				t.Errorf("the PodGroup has a minimum of %d, want %d (-1: none)", got, c.want)
			}
		})
	}
}

func TestMadeByLabel(t *testing.T) {
	ours := &coscheduling.PodGroup{}
	ours.Labels = map[string]string{gangspec.ManagedByLabel: gangspec.LockstepController, "team": "a"}
	if made(&coscheduling.PodGroup{}) || !made(ours) {
		t.Error("the label says who made a PodGroup")
	}
}

// The PodGroup of a Job follows from what the cache keeps of it.
func TestCachedJobSuffices(t *testing.T) {
	for sentence, text := range map[string]string{
		"what it makes and what has ended": "{spec: {parallelism: 8, completions: 10}, status: {succeeded: 1, failedIndexes: '0,3-5'}}",
		"that it is elastic":               "{spec: {parallelism: 8, completions: 8, template: {metadata: {annotations: {gang.scheduling.koordinator.sh/min-available: '4'}}}}}",
		"that it is suspended":             "{spec: {parallelism: 2, suspend: true}}",
	} {
		t.Run(sentence, func(t *testing.T) {
			job := &batchv1.Job{}
			must.Succeed(t, yaml.UnmarshalStrict([]byte(text), job))
			owner := gangspec.Owner{Kind: gangspec.OwnerJob, Name: "train"}
			want, err := ownedpodgroup.Of(owner, job, nil)
			must.Succeed(t, err)
			cached, err := cachetransform.Job(job)
			must.Succeed(t, err)
			got, err := ownedpodgroup.Of(owner, cached.(*batchv1.Job), nil)
			must.Succeed(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("desired PodGroup (-whole Job +cached Job):\n%s", diff)
			}
		})
	}
}

// What users have to know is reported once.
func TestToldOnce(t *testing.T) {
	s := newStage(t, twoGroups, foreign, podOfTwo)
	s.reconcile("lws.serve.2")
	s.reconcile("lws.serve.2")
	want := "Warning PodGroupTaken PodGroup lws.serve.2 was not made by lockstep-controller, which leaves it as it is: its minMember is 7, that of its pods is 4; delete the PodGroup to have it made anew"
	if diff := cmp.Diff([]string{want}, await.Drain(s.events.Events)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// While a Job is suspended its PodGroup asks for nothing, whatever pods have ended, or are seen before the end of the
// suspension is seen.
func TestSuspended(t *testing.T) {
	const (
		job   = `{apiVersion: batch/v1, kind: Job, metadata: {name: train, uid: u}, spec: {suspend: true, parallelism: 2}}`
		group = `{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: job.train, labels: {app.kubernetes.io/managed-by: lockstep-controller}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {minMember: 2}}`
		pod   = `{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {scheduling.lockstep.dev/gang: Owner}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, status: {phase: Failed}}`
	)
	if got := newStage(t, job, group, pod).reconcile("job.train"); got == nil || got.Spec.MinMember != 0 {
		t.Errorf("the PodGroup is %+v, want one without a minimum", got)
	}
	if got := newStage(t, job, pod).reconcile("job.train"); got != nil {
		t.Errorf("the PodGroup %+v was made", got)
	}
}
