package scenario

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// object is a planned object and the client for its resource and namespace.
type object struct {
	*unstructured.Unstructured
	client dynamic.ResourceInterface
}

func (o object) ref() string { return o.GetKind() + " " + nameOf(o) }

// servedWithin is how long after it was applied a CRD is served.
const servedWithin = 15 * time.Second

// clientFor finds the resource of a kind, as the API server serves it now: CRDs come and go.
func (r *run) clientFor(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	mapping, err := r.mapping(kind)
	for meta.IsNoMatchError(err) && time.Since(r.applied) < servedWithin {
		time.Sleep(100 * time.Millisecond)
		mapping, err = r.mapping(kind)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the resource of %s: %w", kind, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return r.site.client.Resource(mapping.Resource), nil
	}
	if namespace == "" {
		namespace = v1.NamespaceDefault
	}
	return r.site.client.Resource(mapping.Resource).Namespace(namespace), nil
}

func (r *run) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	groups, err := restmapper.GetAPIGroupResources(r.site.cluster.Clientset().Discovery())
	if err != nil {
		return nil, fmt.Errorf("asking what the API server serves: %w", err)
	}
	return restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
}

// objectsOf finds planned PodGroups and objects.
func (r *run) objectsOf(groups, refs []string) ([]object, error) {
	var planned []*unstructured.Unstructured
	for _, ref := range refs {
		planned = append(planned, r.plan.objects[ref])
	}
	for _, name := range groups {
		planned = append(planned, r.plan.groups[fullName(name)])
	}
	var out []object
	for _, u := range planned {
		client, err := r.clientFor(u.GroupVersionKind(), u.GetNamespace())
		if err != nil {
			return nil, err
		}
		out = append(out, object{u, client})
	}
	return out, nil
}

// createObjects creates objects in order and waits until the PodGroups among them are seen: each resource is watched on
// its own, and what a PodGroup leads to may be seen before it is.
func (r *run) createObjects(ctx context.Context, groups, refs []string) error {
	objects, err := r.objectsOf(groups, refs)
	if err != nil {
		return err
	}
	var podGroups []types.UID
	policies := false
	for _, o := range objects {
		created, err := o.client.Create(ctx, o.DeepCopy(), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating %s: %w", o.ref(), err)
		}
		if o.GetKind() == "PodGroup" {
			podGroups = append(podGroups, created.GetUID())
		}
		policies = policies || o.GetKind() == "ValidatingAdmissionPolicyBinding"
	}
	if policies {
		if err := r.waitForPolicies(ctx); err != nil {
			return err
		}
	}
	if err := r.waitWithin(ctx, defaultWithin, func() bool { return r.rec.podGroups.HasAll(podGroups...) }); err != nil {
		return fmt.Errorf("waiting to see the PodGroups that were created: %w", err)
	}
	return nil
}

func (r *run) create(ctx context.Context, c *Create) error {
	if err := r.createObjects(ctx, nil, c.Objects); err != nil {
		return err
	}
	for _, name := range c.Nodes {
		if err := r.createPool(ctx, r.plan.pools[name]); err != nil {
			return err
		}
	}
	r.foresee(ctx, c)
	if err := r.createObjects(ctx, c.PodGroups, nil); err != nil {
		return err
	}
	var rows [][]*v1.Pod
	for _, name := range c.Gangs {
		key := fullName(name)
		if r.plan.groups[key] != nil {
			if err := r.createObjects(ctx, []string{key}, nil); err != nil {
				return err
			}
		}
		rows = append(rows, r.plan.members[key])
	}
	for _, pattern := range c.Pods {
		rows = append(rows, r.plan.podsNamed([]string{pattern}))
	}
	switch {
	case c.Concurrently:
		return r.createConcurrently(ctx, rows)
	case c.Interleave:
		rows = [][]*v1.Pod{interleave(rows)}
	}
	for _, row := range rows {
		if err := r.createPods(ctx, row, c.OneByOne); err != nil {
			return err
		}
	}
	return nil
}

// interleave takes one of each row in turn.
func interleave(rows [][]*v1.Pod) []*v1.Pod {
	var out []*v1.Pod
	for i, more := 0, true; more; i++ {
		more = false
		for _, row := range rows {
			if i < len(row) {
				out, more = append(out, row[i]), true
			}
		}
	}
	return out
}

func (r *run) createConcurrently(ctx context.Context, rows [][]*v1.Pod) error {
	var wait sync.WaitGroup
	errs := make(chan error, len(rows))
	for _, row := range rows {
		wait.Go(func() { errs <- r.createPods(ctx, row, false) })
	}
	wait.Wait()
	for range rows {
		if err := <-errs; err != nil {
			return err
		}
	}
	return nil
}

// createPods creates pods in order and waits until they are seen; those created on a node until they
// run.
func (r *run) createPods(ctx context.Context, pods []*v1.Pod, oneByOne bool) error {
	made := map[types.UID]bool{}
	seen := func(tried bool) func() bool {
		return func() bool {
			for uid := range made {
				p := r.rec.pods[uid]
				if p == nil || p.placed && p.pod.Status.Phase == v1.PodPending || tried && !wasTried(p) {
					return false
				}
			}
			return true
		}
	}
	for _, pod := range pods {
		created, err := r.site.cluster.Clientset().CoreV1().Pods(pod.Namespace).Create(ctx, pod.DeepCopy(), metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating pod %s: %w", nameOf(pod), err)
		}
		made[created.UID] = true
		if oneByOne {
			if err := r.waitWithin(ctx, defaultWithin, seen(true)); err != nil {
				return fmt.Errorf("waiting for the scheduler to try pod %s: %w", nameOf(pod), err)
			}
		}
	}
	if err := r.waitWithin(ctx, defaultWithin, seen(false)); err != nil {
		return fmt.Errorf("waiting to see the pods that were created: %w", err)
	}
	return nil
}

// wasTried reports whether the scheduler has bound a pod or written why not.
func wasTried(p *podRecord) bool {
	return p.pod.Spec.NodeName != "" || conditionOf(p.pod, v1.PodScheduled) != nil
}

// waitWithin waits for a condition on what the recorder knows.
func (r *run) waitWithin(ctx context.Context, within time.Duration, condition func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.patience(within))
	defer cancel()
	return r.rec.Wait(ctx, condition)
}

func (r *run) delete(ctx context.Context, d *Delete) error {
	options := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	objects, err := r.objectsOf(d.PodGroups, d.Objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		live, err := o.client.Get(ctx, o.GetName(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("deleting %s: %w", o.ref(), err)
		}
		r.rec.mark(live.GetUID())
		if err := o.client.Delete(ctx, o.GetName(), options); err != nil {
			return fmt.Errorf("deleting %s: %w", o.ref(), err)
		}
	}
	for _, name := range d.Nodes {
		r.rec.Lock()
		r.rec.ourNodes[name] = true
		r.rec.Unlock()
		if err := r.site.client.Resource(nodesResource).Delete(ctx, name, options); err != nil {
			return fmt.Errorf("deleting node %s: %w", name, err)
		}
	}
	options.GracePeriodSeconds = &d.Grace
	uids, err := r.deletePods(ctx, d, options)
	if err != nil || d.Wait != nil && !*d.Wait {
		return err
	}
	if err := r.waitGone(ctx, objects); err != nil {
		return err
	}
	return r.waitWithin(ctx, defaultWithin, func() bool {
		for _, uid := range uids {
			if !r.rec.pods[uid].gone {
				return false
			}
		}
		return true
	})
}

func (r *run) deletePods(ctx context.Context, d *Delete, options metav1.DeleteOptions) ([]types.UID, error) {
	uids := r.liveUIDs(d.Pods)
	if len(d.Pods) > 0 && len(uids) == 0 {
		return nil, fmt.Errorf("deleting pods %v: there are none", d.Pods)
	}
	r.rec.mark(uids...)
	for _, name := range r.podsNamed(d.Pods) {
		pods, base := r.podClient(name)
		if err := client.IgnoreNotFound(pods.Delete(ctx, base, options)); err != nil {
			return nil, fmt.Errorf("deleting pod %s: %w", name, err)
		}
	}
	return uids, nil
}

// podClient returns the client for a pod by its full name, and the name without the namespace.
func (r *run) podClient(name string) (dynamic.ResourceInterface, string) {
	namespace, base := split(name)
	return r.site.client.Resource(podsResource).Namespace(namespace), base
}

// liveUIDs returns the UIDs of the pods that are there and match.
func (r *run) liveUIDs(patterns []string) (uids []types.UID) {
	r.rec.Lock()
	defer r.rec.Unlock()
	for _, p := range r.rec.live(func(p *podRecord) bool { return globAny(patterns, p.name) }) {
		uids = append(uids, p.pod.UID)
	}
	return uids
}

// waitGone waits until objects are gone.
func (r *run) waitGone(ctx context.Context, objects []object) error {
	for _, o := range objects {
		err := wait.PollUntilContextCancel(ctx, cleanPoll, true, func(ctx context.Context) (bool, error) {
			_, err := o.client.Get(ctx, o.GetName(), metav1.GetOptions{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("waiting for %s to be gone: %w", o.ref(), err)
		}
	}
	return nil
}
