package workloads

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec/ownedpodgroup"
	"github.com/lockstep-sh/lockstep/test/helpers/fakeapi"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

type (
	mpiJob         = object[ownedpodgroup.MPIJobSpec]
	jobSet         = object[ownedpodgroup.JobSetSpec]
	rayCluster     = object[ownedpodgroup.RayClusterSpec]
	mpiJobList     = list[ownedpodgroup.MPIJobSpec]
	jobSetList     = list[ownedpodgroup.JobSetSpec]
	rayClusterList = list[ownedpodgroup.RayClusterSpec]
)

var key = types.NamespacedName{Namespace: "team-a", Name: "train"}

// waitForWorkers is the policy by which an MPIJob has stages.
const waitForWorkers = "WaitForWorkersReady"

// controlledBy returns the metadata of a PodGroup, or of another object with a controller.
func controlledBy(apiVersion, kind, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: types.UID(uid + "-child"),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: key.Name, UID: types.UID(uid), Controller: ptr.To(true)}},
	}
}

func ofMPIJob() metav1.ObjectMeta { return controlledBy("kubeflow.org/v2beta1", "MPIJob", "job") }
func ofTrainJob() metav1.ObjectMeta {
	return controlledBy("trainer.kubeflow.org/v1alpha1", "TrainJob", "train")
}

// makeObject returns a workload. It panics where its spec is no YAML.
func makeObject[S spec](meta metav1.ObjectMeta, spec string) *object[S] {
	o := &object[S]{ObjectMeta: meta}
	if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
		panic(err)
	}
	return o
}

func mpi(uid types.UID, policy string, workers int32) *mpiJob {
	return makeObject[ownedpodgroup.MPIJobSpec](metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: uid},
		fmt.Sprintf("{launcherCreationPolicy: %q, mpiReplicaSpecs: {Worker: {replicas: %d}}}", policy, workers))
}

func initialized(meta metav1.ObjectMeta, nodes int32) *jobSet {
	return makeObject[ownedpodgroup.JobSetSpec](meta, fmt.Sprintf(`{replicatedJobs: [
		{name: model-initializer},
		{name: node, dependsOn: [{name: model-initializer}], template: {spec: {parallelism: %d}}}]}`, nodes))
}

// stage is a reconciler with a client.
type stage struct {
	*reconciler
	t      *testing.T
	writes int
	// annotation is the one that is looked at.
	annotation string
	// refuse is the error of the next write.
	refuse error
}

func newStage(t *testing.T, objects ...client.Object) *stage {
	t.Helper()
	scheme := apiobjects.Scheme()
	addToScheme(scheme)
	s := &stage{t: t, annotation: v1alpha1.StagesAnnotation}
	patch := func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
		s.writes++
		if err := s.refuse; err != nil {
			s.refuse = nil
			return err
		}
		return c.Patch(ctx, object, patch, options...)
	}
	s.reconciler = &reconciler{client: fakeapi.New().WithScheme(scheme).WithReturnManagedFields().
		WithInterceptorFuncs(interceptor.Funcs{Patch: patch}).Build()}
	for _, w := range workloads {
		s.watched.Store(w.kind, true)
	}
	for _, object := range objects {
		s.create(object)
	}
	return s
}

func (s *stage) create(object client.Object) {
	s.t.Helper()
	must.Succeed(s.t, s.client.Create(s.t.Context(), object, client.FieldOwner("somebody")))
}

func (s *stage) update(object client.Object) {
	s.t.Helper()
	must.Succeed(s.t, s.client.Update(s.t.Context(), object, client.FieldOwner("somebody")))
}

// look reconciles twice, and returns the annotation. Nothing is written the second time.
func (s *stage) look() string {
	s.t.Helper()
	for range 2 {
		if result, err := s.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result != (reconcile.Result{}) {
			s.t.Fatalf("got %v, error %v", result, err)
		}
	}
	return s.podGroup().Annotations[s.annotation]
}

func (s *stage) podGroup() *coscheduling.PodGroup {
	s.t.Helper()
	pg := &coscheduling.PodGroup{}
	must.Succeed(s.t, s.client.Get(s.t.Context(), key, pg))
	return pg
}

func (s *stage) expect(value string, writes int) {
	s.t.Helper()
	if got := s.look(); got != value || s.writes != writes {
		s.t.Errorf("got %q after %d writes in all, want %q after %d", got, s.writes, value, writes)
	}
}

func TestStagesFollowTheWorkload(t *testing.T) {
	s := newStage(t, &coscheduling.PodGroup{ObjectMeta: ofMPIJob()})
	s.expect("", 0) // its workload is not in the cache yet
	job := mpi("job", waitForWorkers, 4)
	s.create(job)
	s.expect("4,1", 1)
	job.Spec = mpi("job", waitForWorkers, 6).Spec
	s.update(job)
	s.expect("6,1", 2)
	job.Spec.LauncherCreationPolicy = "AtStartup"
	s.update(job)
	s.expect("", 3)
	job.Spec.LauncherCreationPolicy = waitForWorkers
	s.update(job)
	s.expect("6,1", 4)
	must.Succeed(t, s.client.Delete(t.Context(), job))
	s.expect("6,1", 4) // what is known of it stands
}

func TestStagesOfATrainJob(t *testing.T) {
	s := newStage(t, &coscheduling.PodGroup{ObjectMeta: ofTrainJob()}, initialized(ofTrainJob(), 3))
	s.expect("1,3", 1)
}

// Stages and minimum of a TrainJob come and go together.
func TestLoweredMinimumOfATrainJob(t *testing.T) {
	pg := &coscheduling.PodGroup{ObjectMeta: ofTrainJob()}
	pg.Spec.MinMember = 6
	set := makeObject[ownedpodgroup.JobSetSpec](ofTrainJob(), `{replicatedJobs: [{name: a},
		{name: b, dependsOn: [{name: a, status: Ready}], template: {spec: {parallelism: 2, completions: 8}}},
		{name: c, replicas: 3, dependsOn: [{name: b, status: Complete}]}]}`)
	s := newStage(t, pg, set)
	s.expect("1,2", 1)
	s.annotation = v1alpha1.MinAvailableAnnotation
	s.expect("3", 1)
	set.Spec.ReplicatedJobs[1].Template.Spec.Completions = ptr.To[int32](2)
	s.update(set)
	s.expect("", 2)
	s.annotation = v1alpha1.StagesAnnotation
	s.expect("1,2,3", 2)
}

func TestWhatUsersWriteStands(t *testing.T) {
	s := newStage(t, &coscheduling.PodGroup{ObjectMeta: ofMPIJob()}, mpi("job", waitForWorkers, 4))
	s.expect("4,1", 1)
	pg := s.podGroup()
	pg.Annotations[v1alpha1.StagesAnnotation] = "5"
	s.update(pg)
	s.expect("5", 1)
	pg = s.podGroup()
	delete(pg.Annotations, v1alpha1.StagesAnnotation)
	s.update(pg)
	s.expect("4,1", 2)

	meta := ofMPIJob()
	meta.Annotations = map[string]string{v1alpha1.StagesAnnotation: "3,2"}
	s = newStage(t, &coscheduling.PodGroup{ObjectMeta: meta}, mpi("job", "", 4))
	s.expect("3,2", 0)
}

func TestOtherPodGroupsAreLeft(t *testing.T) {
	for sentence, objects := range map[string][]client.Object{
		"of nobody":                 {&coscheduling.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, mpi("job", waitForWorkers, 4)},
		"of an MPIJob that was":     {&coscheduling.PodGroup{ObjectMeta: ofMPIJob()}, mpi("other", waitForWorkers, 4)},
		"of another kind":           {&coscheduling.PodGroup{ObjectMeta: controlledBy("kubeflow.org/v1", "PyTorchJob", "job")}, mpi("job", waitForWorkers, 4)},
		"whose JobSet is another's": {&coscheduling.PodGroup{ObjectMeta: ofTrainJob()}, initialized(controlledBy("example.com/v1", "Set", "set"), 3)},
		"whose JobSet is nobody's": {
			&coscheduling.PodGroup{ObjectMeta: ofTrainJob()}, initialized(metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, 3),
		},
	} {
		t.Run(sentence, func(t *testing.T) { newStage(t, objects...).expect("", 0) })
	}
	t.Run("of a kind that is not served", func(t *testing.T) {
		s := newStage(t, &coscheduling.PodGroup{ObjectMeta: ofMPIJob()}, mpi("job", waitForWorkers, 4))
		s.watched.Clear()
		s.expect("", 0)
	})
	t.Run("that is gone", func(t *testing.T) {
		if result, err := newStage(t).Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil || result != (reconcile.Result{}) {
			t.Errorf("got %v, error %v", result, err)
		}
	})
}

func TestWritesThatFail(t *testing.T) {
	resource := schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups").GroupResource()
	for sentence, c := range map[string]struct {
		refuse error
		again  bool
		want   string
	}{
		"somebody else has changed it": {refuse: apierrors.NewConflict(resource, key.Name, errors.New("changed")), again: true},
		"it is gone":                   {refuse: apierrors.NewNotFound(resource, key.Name)},
		"it is not allowed":            {refuse: apierrors.NewForbidden(resource, key.Name, errors.New("no")), want: "writing annotations of PodGroup team-a/train: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			s := newStage(t, &coscheduling.PodGroup{ObjectMeta: ofMPIJob()}, mpi("job", waitForWorkers, 4))
			s.refuse = c.refuse
			result, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
			if (result.RequeueAfter > 0) != c.again || (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("got %v, error %v", result, err)
			}
			s.expect("4,1", 2)
		})
	}
}

func TestWhichPodGroupsAreLookedAt(t *testing.T) {
	with := func(change func(*coscheduling.PodGroup)) *coscheduling.PodGroup {
		pg := &coscheduling.PodGroup{ObjectMeta: ofMPIJob()}
		change(pg)
		return pg
	}
	p, plain, owned := podGroups(), &coscheduling.PodGroup{}, with(func(*coscheduling.PodGroup) {})
	elsewhere := &coscheduling.PodGroup{ObjectMeta: controlledBy("kubeflow.org/v1", "PyTorchJob", "job")}
	if p.Create(event.CreateEvent{Object: plain}) || p.Create(event.CreateEvent{Object: elsewhere}) || !p.Create(event.CreateEvent{Object: owned}) ||
		!p.Create(event.CreateEvent{Object: &coscheduling.PodGroup{ObjectMeta: ofRayCluster()}}) {
		t.Error("of new ones, not those that a workload owns")
	}
	written := with(func(pg *coscheduling.PodGroup) { pg.Annotations = map[string]string{v1alpha1.StagesAnnotation: "4,1"} })
	lowered := with(func(pg *coscheduling.PodGroup) {
		pg.Annotations = map[string]string{v1alpha1.MinAvailableAnnotation: "2"}
	})
	busy := with(func(pg *coscheduling.PodGroup) { pg.ResourceVersion, pg.Annotations = "9", map[string]string{"a": "b"} })
	other := with(func(pg *coscheduling.PodGroup) { pg.OwnerReferences[0].UID = "other" })
	changed := with(func(pg *coscheduling.PodGroup) { pg.Generation = 2 })
	for _, c := range []struct {
		was, is client.Object
		want    bool
	}{
		{plain, owned, true}, {owned, written, true}, {written, owned, true}, {owned, lowered, true}, {owned, other, true}, {owned, changed, true},
		{owned, busy, false}, {plain, plain, false}, {owned, plain, false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: c.was, ObjectNew: c.is}); got != c.want {
			t.Errorf("from %v to %v: %t", c.was, c.is, got)
		}
	}
}
