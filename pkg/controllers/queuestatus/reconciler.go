package queuestatus

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/controllers/internal/objects"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
	"github.com/lockstep-sh/lockstep/pkg/kube/crds"
	"github.com/lockstep-sh/lockstep/pkg/planning/clusterdevices"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/pkg/rules/queueing/share"
	"github.com/lockstep-sh/lockstep/pkg/rules/reservationstate"
)

const (
	// settle is how long events gather before the queues are read.
	settle = 200 * time.Millisecond
	// pause is the least time between two reconciliations; busy bounds the part of the time that reading and reckoning
	// take, in large clusters. Waiting for the API server to write does not count.
	pause = time.Second
	busy  = 10
)

// reconciler updates the status of all queues at once: what one deserves depends
// on all others. It is run by one worker.
type reconciler struct {
	client client.Client
	clock  clock.PassiveClock
	// schedulers and leaveNative are as in a cluster.
	schedulers, leaveNative map[string]bool
	rules                   share.Rules
	pools                   []config.Pool
	// evictedHold is for how long what evicted gangs had counts.
	evictedHold time.Duration
	// last is when it last ran, and next when it may run again.
	last, next time.Time
	// devices are the devices that nodes have.
	devices *clusterdevices.Counts
	// cluster is the watches of everything but queues.
	cluster crds.OnDemand
	// watched has the kinds that are watched, of those that the API server may not serve.
	watched sync.Map
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := r.clock.Now()
	if wait := r.next.Sub(now); wait > 0 && !now.Before(r.last) {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.last, r.next = now, now.Add(pause)
	c, err := r.read(ctx)
	if err != nil || c == nil {
		return reconcile.Result{}, err
	}
	var result reconcile.Result
	var failures []error
	want, err := c.statuses(metav1.NewTime(now))
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("reckoning the status of queues: %w", err)
	}
	r.next = now.Add(max(pause, busy*r.clock.Since(now)))
	for _, q := range c.queues {
		switch err := r.write(ctx, q, want[q.Name]); {
		case apierrors.IsConflict(err):
			result.RequeueAfter = pause // the cache is behind
		case err != nil && !apierrors.IsNotFound(err):
			failures = append(failures, fmt.Errorf("writing the status of queue %s: %w", q.Name, err))
		}
	}
	if len(failures) > 0 {
		return reconcile.Result{}, errors.Join(failures...)
	}
	for _, e := range c.evicted { // what ends then is no event
		if left := e.At.Add(r.evictedHold).Sub(now); left > 0 && (result.RequeueAfter == 0 || left < result.RequeueAfter) {
			result.RequeueAfter = left
		}
	}
	return result, nil
}

// read reads the cluster from the cache. Nothing of it may be changed. Where there are no
// queues, it returns nil.
func (r *reconciler) read(ctx context.Context) (*cluster, error) {
	c := &cluster{schedulers: r.schedulers, leaveNative: r.leaveNative, rules: r.rules, pools: r.pools,
		evictedHold: r.evictedHold, devices: r.devices}
	var queues v1alpha1.QueueList
	if err := r.client.List(ctx, &queues, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing queues: %w", err)
	}
	if len(queues.Items) == 0 {
		return nil, nil
	}
	if err := r.cluster.Ensure(); err != nil {
		return nil, err
	}
	var pods v1.PodList
	var nodes v1.NodeList
	var namespaces v1.NamespaceList
	for what, list := range map[string]client.ObjectList{"pods": &pods, "nodes": &nodes, "namespaces": &namespaces} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing %s: %w", what, err)
		}
	}
	c.queues, c.pods = apiobjects.Pointers(queues.Items), apiobjects.Pointers(pods.Items)
	c.nodes = apiobjects.Pointers(nodes.Items)
	c.byNamespace = map[string]string{}
	for i := range namespaces.Items {
		if queue := namespaces.Items[i].Annotations[v1alpha1.QueueLabel]; queue != "" {
			c.byNamespace[namespaces.Items[i].Name] = queue
		}
	}
	if err := r.readDevices(ctx, c); err != nil {
		return nil, err
	}
	var err error
	if c.reserved, err = r.reserved(ctx); err != nil {
		return nil, err
	}
	return c, r.readGroups(ctx, c)
}

// readDevices reads which devices nodes have, and pods ask for.
func (r *reconciler) readDevices(ctx context.Context, c *cluster) error {
	if !r.watches(deviceSlices) {
		return nil
	}
	var all resourceapi.ResourceSliceList
	var classes resourceapi.DeviceClassList
	var claims resourceapi.ResourceClaimList
	var templates resourceapi.ResourceClaimTemplateList
	for what, list := range map[string]client.ObjectList{
		"ResourceSlices": &all, "DeviceClasses": &classes, "ResourceClaims": &claims, "ResourceClaimTemplates": &templates,
	} {
		if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %s: %w", what, err)
		}
	}
	r.devices.Replace(apiobjects.Pointers(all.Items), apiobjects.Pointers(classes.Items))
	c.claims, c.templates = apiobjects.Pointers(claims.Items), apiobjects.Pointers(templates.Items)
	return nil
}

// reserved returns what Reservations hold and look for, as pods.
func (r *reconciler) reserved(ctx context.Context) (pods []*v1.Pod, err error) {
	if !r.watches(reservations) {
		return nil, nil
	}
	var list v1alpha1.ReservationList
	if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Reservations: %w", err)
	}
	for i := range list.Items {
		pods = append(pods, reservationstate.CountedPods(&list.Items[i], r.clock.Now())...)
	}
	return pods, nil
}

// readGroups reads the PodGroups, and what they say of evicted gangs.
func (r *reconciler) readGroups(ctx context.Context, c *cluster) error {
	c.groups, c.evicted = map[gangspec.Key]gangspec.PodGroups{}, map[gangspec.Key]evictionrecord.Record{}
	if r.watches(native) {
		var list schedulingv1beta1.PodGroupList
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing native PodGroups: %w", err)
		}
		for i := range list.Items {
			c.addGroup(&list.Items[i])
		}
	}
	if r.watches(coscheduling.Kind) {
		var list coscheduling.PodGroupList
		if err := r.client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing PodGroups of the community: %w", err)
		}
		for i := range list.Items {
			c.addGroup(&list.Items[i])
		}
	}
	for key, groups := range c.groups {
		if value := groups.Facts().Evicted; value != "" {
			c.evicted[key] = evictionrecord.Read(value)
		}
	}
	return nil
}

func (c *cluster) addGroup(object client.Object) {
	key := gangspec.Key{Namespace: object.GetNamespace(), Name: object.GetName()}
	groups := c.groups[key]
	groups.Read(object)
	c.groups[key] = groups
}

func (r *reconciler) watches(kind schema.GroupVersionKind) bool {
	_, watched := r.watched.Load(kind)
	return watched
}

// write patches a status that is not as it should be.
func (r *reconciler) write(ctx context.Context, q *v1alpha1.Queue, want v1alpha1.QueueStatus) error {
	first := meta.FindStatusCondition(q.Status.Conditions, v1alpha1.QueueReady) == nil
	if !first && equality.Semantic.DeepEqual(q.Status, want) {
		return nil
	}
	before, after := q.DeepCopy(), q.DeepCopy()
	after.Status = want
	if first { // 0 is written once, for clients that print it
		before.Status.PendingGangs, before.Status.RunningGangs = -1, -1
	}
	return objects.PatchStatus(ctx, r.client, before, after)
}
