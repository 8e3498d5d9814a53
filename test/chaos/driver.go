package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/test/chaos/invariant"
	"github.com/lockstep-sh/lockstep/test/chaos/workload"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// driver plays the users: it takes the steps of all works of a plan.
type driver struct {
	dynamic dynamic.Interface
	seen    *observer
	begin   time.Time
	done    sync.WaitGroup
	// calls bounds calls in flight.
	calls chan struct{}

	mu sync.Mutex
	// there are the works that were created and not deleted yet, in the order of their creation.
	there []*activity
	// errs are the errors of calls that the API server refused.
	errs []error
	bad  badInputs
}

// activity is a work that is under way.
type activity struct {
	*workload.Work
	gangs []*cast
}

// cast is a gang of the work, and what is known of its objects.
type cast struct {
	*workload.Gang
	members int // that were made, of a bare gang
	minimum int
}

const (
	// callsAtOnce bounds how much users load the API server.
	callsAtOnce = 8
	// againAfter is the pause before a call that failed is made again.
	againAfter = 200 * time.Millisecond
)

func newDriver(dynamic dynamic.Interface, seen *observer) *driver {
	return &driver{dynamic: dynamic, seen: seen, calls: make(chan struct{}, callsAtOnce)}
}

// run takes all steps until ctx ends.
func (d *driver) run(ctx context.Context, works []workload.Work) {
	for i := range works {
		w := &works[i]
		if d.waitFor(ctx, w.Steps[0].At) != nil {
			break
		}
		a := &activity{Work: w}
		for g := range w.Gangs {
			a.gangs = append(a.gangs, &cast{Gang: &w.Gangs[g], minimum: w.Gangs[g].Min})
		}
		d.mu.Lock()
		d.there = append(d.there, a)
		d.mu.Unlock()
		d.done.Go(func() { d.play(ctx, a) })
	}
	d.done.Wait()
}

func (d *driver) waitFor(ctx context.Context, at time.Duration) error {
	return await.Pause(ctx, time.Until(d.begin.Add(at)))
}

// play takes the steps of one work.
func (d *driver) play(ctx context.Context, a *activity) {
	for _, step := range a.Steps {
		if d.waitFor(ctx, step.At) != nil {
			return
		}
		d.take(ctx, a, step)
	}
}

// take takes one step.
func (d *driver) take(ctx context.Context, a *activity, step workload.Step) {
	g := a.gangs[step.Gang]
	switch step.Do {
	case workload.Create:
		for _, g := range a.gangs {
			d.create(ctx, g)
		}
	case workload.Delete:
		d.delete(ctx, a)
	case workload.DeleteMember:
		d.deleteMember(ctx, g, step.Member)
	case workload.FailMember:
		d.failMember(ctx, g, step.Member)
	case workload.AddMember:
		d.addMember(ctx, g)
	case workload.SetMinimum:
		d.setMinimum(ctx, g, step.Minimum)
	case workload.DropPodGroup:
		d.deleteObject(ctx, g.Group(g.minimum), metav1.DeleteOptions{})
	case workload.MakePodGroup:
		d.createObject(ctx, g.Group(g.minimum))
	case workload.Reserve:
		d.createObject(ctx, a.Reservation.Object(&a.Gangs[0]))
	case workload.Unreserve:
		d.deleteObject(ctx, a.Reservation.Object(&a.Gangs[0]), metav1.DeleteOptions{})
	}
}

// try calls until the API server has done it, or had done it before, or the object is gone.
func (d *driver) try(ctx context.Context, call func(context.Context) error) {
	for tries := 1; ; tries++ {
		err := d.once(ctx, call)
		switch {
		case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsConflict(err):
			return // a conflict: the object of that UID is gone
		case apierrors.IsForbidden(err) && tries < forbiddenFor:
			// An API server that has just started may not know the PriorityClasses yet.
		case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
			d.mu.Lock()
			defer d.mu.Unlock()
			d.errs = append(d.errs, err)
			return
		}
		if await.Pause(ctx, againAfter) != nil {
			return
		}
	}
}

// forbiddenFor is how often a call is made before it counts as forbidden.
const forbiddenFor = 20

// callTimeout bounds one call: an API server that is stopped does not answer, and goes on with it later.
const callTimeout = 10 * time.Second

func (d *driver) once(ctx context.Context, call func(context.Context) error) error {
	d.calls <- struct{}{}
	defer func() { <-d.calls }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

var scheme = apiobjects.Scheme()

// untyped returns an object, and the client of its resource.
func (d *driver) untyped(object runtime.Object) (*unstructured.Unstructured, dynamic.ResourceInterface) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	kind, kindErr := apiutil.GVKForObject(object, scheme)
	if err := errors.Join(err, kindErr); err != nil {
		panic(fmt.Errorf("making an object: %w", err)) // the plan has no other
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	if namespace := u.GetNamespace(); namespace != "" {
		return u, d.dynamic.Resource(resource).Namespace(namespace)
	}
	return u, d.dynamic.Resource(resource)
}

func (d *driver) createObject(ctx context.Context, object runtime.Object) {
	u, client := d.untyped(object)
	d.try(ctx, func(ctx context.Context) error {
		_, err := client.Create(ctx, u, metav1.CreateOptions{})
		return err
	})
}

// patchObject merges into an object.
func (d *driver) patchObject(ctx context.Context, object runtime.Object, patch []byte, subresources ...string) {
	u, client := d.untyped(object)
	d.try(ctx, func(ctx context.Context) error {
		_, err := client.Patch(ctx, u.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		return err
	})
}

func (d *driver) deleteObject(ctx context.Context, object runtime.Object, options metav1.DeleteOptions) {
	u, client := d.untyped(object)
	d.try(ctx, func(ctx context.Context) error { return client.Delete(ctx, u.GetName(), options) })
}

// background makes what belongs to an object go after it.
var background = metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}

// deleteAll deletes all objects of a resource with a label, in a namespace.
func (d *driver) deleteAll(ctx context.Context, resource schema.GroupVersionResource, namespace, label string) {
	d.try(ctx, func(ctx context.Context) error {
		return d.dynamic.Resource(resource).Namespace(namespace).DeleteCollection(ctx, background, metav1.ListOptions{LabelSelector: label})
	})
}

func (d *driver) create(ctx context.Context, g *cast) {
	if g.Join == workload.PodGroup {
		d.createObject(ctx, g.Group(g.minimum))
	}
	switch g.Owner {
	case workload.Job:
		d.createObject(ctx, g.BatchJob())
	case workload.ReplicaSet:
		d.createObject(ctx, g.Replicas())
	case workload.Bare:
		for range g.Size {
			d.addMember(ctx, g)
		}
	}
}

func (d *driver) addMember(ctx context.Context, g *cast) {
	pod := g.Pod(g.members)
	g.members++
	d.createObject(ctx, pod)
}

func (d *driver) deleteMember(ctx context.Context, g *cast, number int) {
	members := d.seen.members(g.Gang, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodPending || p.Status.Phase == v1.PodRunning })
	if len(members) == 0 {
		return
	}
	pod := members[number%len(members)]
	d.seen.observe(invariant.UserEnds{Pod: pod.UID})
	d.deleteObject(ctx, pod, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

func (d *driver) failMember(ctx context.Context, g *cast, number int) {
	members := d.seen.members(g.Gang, func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
	if len(members) == 0 {
		return
	}
	d.patchObject(ctx, members[number%len(members)], workload.FailNow)
}

func (d *driver) setMinimum(ctx context.Context, g *cast, minimum int) {
	g.minimum = minimum
	d.patchObject(ctx, g.Group(minimum), fmt.Appendf(nil, `{"spec":{"minMember":%d}}`, minimum))
}

// delete deletes everything of a work but its Reservation, which holds what it holds until it has run out.
func (d *driver) delete(ctx context.Context, a *activity) {
	for _, g := range a.gangs {
		d.seen.observe(invariant.UserEnds{Gang: g.Key()})
		for _, p := range d.seen.members(g.Gang, func(*v1.Pod) bool { return true }) {
			d.seen.observe(invariant.UserEnds{Pod: p.UID})
		}
		d.deleteGang(ctx, g)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, one := range d.there {
		if one == a {
			d.there = append(d.there[:i:i], d.there[i+1:]...)
			return
		}
	}
}

func (d *driver) deleteGang(ctx context.Context, g *cast) {
	if g.Join == workload.PodGroup {
		d.deleteObject(ctx, g.Group(g.minimum), background)
	}
	switch g.Owner {
	case workload.Job:
		d.deleteObject(ctx, g.BatchJob(), background)
	case workload.ReplicaSet:
		d.deleteObject(ctx, g.Replicas(), background)
	case workload.Bare:
		d.deleteAll(ctx, podsResource, g.Namespace, workload.GangLabel+"="+g.Name)
	}
}

// oldest deletes the work that has been there for longest, and reports whether there was one.
func (d *driver) oldest(ctx context.Context) bool {
	d.mu.Lock()
	if len(d.there) == 0 {
		d.mu.Unlock()
		return false
	}
	a := d.there[0]
	d.mu.Unlock()
	d.delete(ctx, a)
	return true
}

// refusals returns the errors of calls that the API server refused.
func (d *driver) refusals() []error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.errs
}
