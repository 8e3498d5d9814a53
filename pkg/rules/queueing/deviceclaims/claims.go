// Package deviceclaims counts the devices that pods ask for by ResourceClaims as amounts of resources, beside what they
// request.
//
// A claim counts once, for the first of the pods that name it, whatever the order in which objects come. While none of
// them has a node it counts once for each gang, and each pod in none: any of these may be the first. The package looks
// nothing up: its caller passes in claims, templates and pods.
package deviceclaims

import (
	"cmp"
	"maps"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/pkg/util/bools"
	"github.com/lockstep-sh/lockstep/pkg/util/nested"
)

// Classes knows which resources the devices of DeviceClasses count as.
type Classes interface {
	// ResourceOf returns the resource that devices of a class count as, whether the class exists or not.
	ResourceOf(class string) v1.ResourceName
	// Renamed returns an amount with the resources of a class under the name that its devices count as. It may return
	// the amount itself, and does not change it.
	Renamed(amount resource.Vector) resource.Vector
}

// Claims has the ResourceClaims and their templates, and the pods that name them.
type Claims struct {
	classes Classes
	sources map[source]content
	// users are the pods that name a source; named has the sources that each of them names.
	users map[source]map[types.UID]user
	named map[types.UID]map[source]bool
}

// user is a pod that names a source.
type user struct {
	*v1.Pod
	// job is what starts together with it: its gang, or itself.
	job string
}

// source is a ResourceClaim or a ResourceClaimTemplate.
type source struct {
	types.NamespacedName
	template bool
}

// content is what a source says.
type content struct {
	// controller is the pod that a claim was made for, if it was made from a template.
	controller types.UID
	// devices is how many devices there are of each class.
	devices map[string]int64
}

func (c content) equal(other content) bool {
	return c.controller == other.controller && maps.Equal(c.devices, other.devices)
}

// New returns Claims without any.
func New(classes Classes) *Claims {
	return &Claims{
		classes: classes, sources: map[source]content{},
		users: map[source]map[types.UID]user{}, named: map[types.UID]map[source]bool{},
	}
}

// Set adds or updates a ResourceClaim. It returns the pods whose amounts may have changed.
func (c *Claims) Set(claim *resourceapi.ResourceClaim) map[types.UID]bool {
	now := content{devices: devicesOf(&claim.Spec, claim.Status.Allocation)}
	if controller := metav1.GetControllerOfNoCopy(claim); controller != nil {
		now.controller = controller.UID
	}
	return c.set(source{NamespacedName: types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}}, now)
}

// Drop removes a ResourceClaim. It returns the pods whose amounts may have changed.
func (c *Claims) Drop(claim types.NamespacedName) map[types.UID]bool {
	return c.drop(source{NamespacedName: claim})
}

// SetTemplate adds or updates a ResourceClaimTemplate. It returns the pods whose amounts may have changed.
func (c *Claims) SetTemplate(template *resourceapi.ResourceClaimTemplate) map[types.UID]bool {
	of := source{types.NamespacedName{Namespace: template.Namespace, Name: template.Name}, true}
	return c.set(of, content{devices: devicesOf(&template.Spec.Spec, nil)})
}

// DropTemplate removes a ResourceClaimTemplate. It returns the pods whose amounts may have changed.
func (c *Claims) DropTemplate(template types.NamespacedName) map[types.UID]bool {
	return c.drop(source{template, true})
}

func (c *Claims) set(of source, now content) map[types.UID]bool {
	if before, known := c.sources[of]; known && before.equal(now) {
		return nil
	}
	c.sources[of] = now
	return c.usersOf(of)
}

func (c *Claims) drop(of source) map[types.UID]bool {
	if _, known := c.sources[of]; !known {
		return nil
	}
	delete(c.sources, of)
	return c.usersOf(of)
}

func (c *Claims) usersOf(of source) map[types.UID]bool {
	uids := map[types.UID]bool{}
	for uid := range c.users[of] {
		uids[uid] = true
	}
	return uids
}

// SetPod adds or updates a pod that is in a gang, or in none if its name is empty. It returns the other pods whose
// amounts may have changed.
func (c *Claims) SetPod(pod *v1.Pod, gang string) map[types.UID]bool {
	if len(pod.Spec.ResourceClaims) == 0 && c.named[pod.UID] == nil {
		return nil
	}
	names := map[source]bool{}
	for i := range pod.Spec.ResourceClaims {
		for _, of := range sourcesOf(pod, i) {
			names[of] = true
		}
	}
	return c.replace(pod.UID, names, user{pod, cmp.Or(gang, string(pod.UID))})
}

// DropPod removes a pod. It returns the other pods whose amounts may have changed.
func (c *Claims) DropPod(uid types.UID) map[types.UID]bool { return c.replace(uid, nil, user{}) }

func (c *Claims) replace(uid types.UID, names map[source]bool, pod user) map[types.UID]bool {
	changed := map[types.UID]bool{}
	for of := range union(c.named[uid], names) {
		if was, is := c.users[of][uid]; names[of] && is && (of.template || was.paysAs(pod)) {
			c.users[of][uid] = pod
			continue
		}
		before := c.payers(of)
		if names[of] {
			nested.Set(c.users, of, uid, pod)
		} else {
			nested.Delete(c.users, of, uid)
		}
		now := c.payers(of)
		for one := range union(before, now) {
			changed[one] = changed[one] || before[one] != now[one]
		}
	}
	if c.named[uid] = names; len(names) == 0 {
		delete(c.named, uid)
	}
	delete(changed, uid)
	maps.DeleteFunc(changed, func(_ types.UID, is bool) bool { return !is })
	return changed
}

// paysAs reports whether a pod pays for the same claims as a later version of it.
func (u user) paysAs(now user) bool { return u.Spec.NodeName == now.Spec.NodeName && u.job == now.job }

func union[K comparable](a, b map[K]bool) map[K]bool {
	both := maps.Clone(a)
	if both == nil {
		return b
	}
	maps.Copy(both, b)
	return both
}

// payers returns the pods for which a claim counts: the first by [comparePods] if that has a node, and else the first
// of each job.
func (c *Claims) payers(of source) map[types.UID]bool {
	if of.template {
		return nil // each pod gets a claim of its own
	}
	first := map[string]*v1.Pod{}
	for _, pod := range c.users[of] {
		job := ""
		if pod.Spec.NodeName == "" {
			job = pod.job
		}
		if first[job] == nil || comparePods(pod.Pod, first[job]) < 0 {
			first[job] = pod.Pod
		}
	}
	if placed := first[""]; placed != nil {
		return map[types.UID]bool{placed.UID: true}
	}
	uids := map[types.UID]bool{}
	for _, pod := range first {
		uids[pod.UID] = true
	}
	return uids
}

// comparePods orders pods by: 1. with a node before without; 2. age; 3. UID.
func comparePods(a, b *v1.Pod) int {
	return cmp.Or(bools.Compare(a.Spec.NodeName == "", b.Spec.NodeName == ""),
		a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

// Amount returns what a pod asks for in its queue: what it requests, and the devices of its claims. A claim
// that pods share counts for the first of them, see payers. A claim that does not exist counts as its template
// says, or without a template for nothing.
func (c *Claims) Amount(pod *v1.Pod) resource.Vector {
	amount := c.Renamed(resource.OfPod(pod))
	if len(pod.Spec.ResourceClaims) == 0 {
		return amount
	}
	amount = maps.Clone(amount)
	seen := map[source]bool{}
	for i := range pod.Spec.ResourceClaims {
		of, found := c.resolve(pod, i)
		if !found || !of.template && (seen[of] || !c.payers(of)[pod.UID]) {
			continue
		}
		seen[of] = true
		amount.Add(c.resourcesOf(of), 1)
	}
	return amount
}

// Freed returns how much more devices, or less, are free once a pod has ended than what it counts for: of a claim that
// it shares none while another pod has it, and else all. has reports whether a pod has its claims.
func (c *Claims) Freed(pod *v1.Pod, has func(types.UID) bool) resource.Vector {
	more, seen := resource.Vector{}, map[source]bool{}
	for i := range pod.Spec.ResourceClaims {
		of, found := c.resolve(pod, i)
		if !found || of.template || seen[of] {
			continue
		}
		seen[of] = true
		counts, stays := c.payers(of)[pod.UID], false
		for uid := range c.users[of] {
			stays = stays || uid != pod.UID && has(uid)
		}
		switch {
		case counts && stays:
			more.Add(c.resourcesOf(of), -1)
		case !counts && !stays:
			more.Add(c.resourcesOf(of), 1)
		}
	}
	return more
}

// Renamed returns an amount with the resources of a class under the name that its devices count as.
func (c *Claims) Renamed(amount resource.Vector) resource.Vector { return c.classes.Renamed(amount) }

// resourcesOf returns the devices of a source as resources.
func (c *Claims) resourcesOf(of source) resource.Vector {
	resources := resource.Vector{}
	for class, count := range c.sources[of].devices {
		resources[c.classes.ResourceOf(class)] += count
	}
	return resources
}

// resolve returns the source that says which devices the i-th entry of a pod's claims has; false for none.
func (c *Claims) resolve(pod *v1.Pod, i int) (source, bool) {
	for _, of := range sourcesOf(pod, i) {
		made := pod.Spec.ResourceClaims[i].ResourceClaimTemplateName != nil && !of.template
		if said, known := c.sources[of]; known && (!made || said.controller == pod.UID) {
			return of, true
		}
	}
	return source{}, false
}

// sourcesOf returns where the devices of the i-th entry of a pod's claims are found: in the claim, as far as its name
// is known, else in its template.
func sourcesOf(pod *v1.Pod, i int) []source {
	entry := &pod.Spec.ResourceClaims[i]
	var sources []source
	name, _, err := resourceclaim.Name(pod, entry)
	switch {
	case err == nil && name == nil:
		return nil // no claim is needed
	case err == nil:
		sources = append(sources, source{NamespacedName: types.NamespacedName{Namespace: pod.Namespace, Name: *name}})
	}
	if template := entry.ResourceClaimTemplateName; template != nil {
		sources = append(sources, source{types.NamespacedName{Namespace: pod.Namespace, Name: *template}, true})
	}
	return sources
}
