package deviceclaims

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/pkg/rules/resource"
)

// classes count the devices of a class as "devices/CLASS", and what is requested as "alias" too.
type classes struct{}

func (classes) ResourceOf(class string) v1.ResourceName { return v1.ResourceName("devices/" + class) }

func (classes) Renamed(amount resource.Vector) resource.Vector {
	if _, ok := amount["alias"]; !ok {
		return amount
	}
	as := maps.Clone(amount)
	delete(as, "alias")
	as["devices/gpu"] += amount["alias"]
	return as
}

func exactly(name, class string, count int64, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
	one := &resourceapi.ExactDeviceRequest{DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count}
	for _, change := range changes {
		change(one)
	}
	return resourceapi.DeviceRequest{Name: name, Exactly: one}
}

func all(r *resourceapi.ExactDeviceRequest) {
	r.AllocationMode, r.Count = resourceapi.DeviceAllocationModeAll, 0
}

func admin(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) }

func firstOf(name string, alternatives ...resourceapi.DeviceSubRequest) resourceapi.DeviceRequest {
	return resourceapi.DeviceRequest{Name: name, FirstAvailable: alternatives}
}

func alternative(name, class string, count int64) resourceapi.DeviceSubRequest {
	return resourceapi.DeviceSubRequest{
		Name: name, DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
	}
}

func claim(name string, requests ...resourceapi.DeviceRequest) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: requests}},
	}
}

// given allocates a claim a device for each name of a request.
func given(c *resourceapi.ResourceClaim, requests ...string) *resourceapi.ResourceClaim {
	c.Status.Allocation = &resourceapi.AllocationResult{}
	for i, request := range requests {
		c.Status.Allocation.Devices.Results = append(c.Status.Allocation.Devices.Results, resourceapi.DeviceRequestAllocationResult{
			Request: request, Driver: "d", Pool: "p", Device: fmt.Sprint("device-", i), AdminAccess: ptr.To(request == "monitor"),
		})
	}
	return c
}

func TestDevicesOf(t *testing.T) {
	for sentence, c := range map[string]struct {
		claim *resourceapi.ResourceClaim
		want  map[string]int64
	}{
		"as many as are asked for": {claim("c", exactly("a", "gpu", 4)), map[string]int64{"gpu": 4}},
		"one, if no number is":     {claim("c", exactly("a", "gpu", 0)), map[string]int64{"gpu": 1}},
		"requests add up":          {claim("c", exactly("a", "gpu", 2), exactly("b", "net", 1), exactly("c", "gpu", 1)), map[string]int64{"gpu": 3, "net": 1}},
		"of alternatives the first": {
			claim("c", firstOf("a", alternative("large", "large", 1), alternative("small", "small", 2))), map[string]int64{"large": 1},
		},
		"of alternatives the one that was allocated": {
			given(claim("c", firstOf("a", alternative("large", "large", 1), alternative("small", "small", 2))), "a/small", "a/small"),
			map[string]int64{"small": 2},
		},
		"all that match are one at least": {claim("c", exactly("a", "gpu", 0, all)), map[string]int64{"gpu": 1}},
		"all that match are those that were allocated": {
			given(claim("c", exactly("a", "gpu", 0, all)), "a", "a", "a"), map[string]int64{"gpu": 3},
		},
		"admin access takes nothing": {claim("c", exactly("a", "gpu", 4, admin), exactly("b", "gpu", 1)), map[string]int64{"gpu": 1}},
		"nor does it once allocated": {given(claim("c", exactly("monitor", "gpu", 2, admin), exactly("b", "gpu", 1)), "monitor", "monitor", "b"), map[string]int64{"gpu": 1}},
		"no more than a claim can have": {
			claim("c", exactly("a", "gpu", 1<<62), exactly("b", "gpu", 1<<62)), map[string]int64{"gpu": 2 * resourceapi.AllocationResultsMaxSize},
		},
		"an allocation for a request that there is not": {given(claim("c", exactly("a", "gpu", 1)), "b", "a/b/c"), map[string]int64{"gpu": 1}},
		"a claim for nothing":                           {claim("c"), map[string]int64{}},
		"a request of a kind that is not known":         {claim("c", resourceapi.DeviceRequest{Name: "a"}), map[string]int64{}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, devicesOf(&c.claim.Spec, c.claim.Status.Allocation)); diff != "" {
				t.Errorf("devices (-want +got):\n%s", diff)
			}
		})
	}
}

// pod returns a pod, older the sooner it comes in the alphabet, with claims of these names; "template:NAME" is one to
// be made, "template:NAME=CLAIM" one that was.
func pod(name string, claims ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(int64(name[0]), 0)),
	}}
	for i, claim := range claims {
		entry := v1.PodResourceClaim{Name: fmt.Sprint("entry-", i), ResourceClaimName: &claim}
		var template, made string
		if n, _ := fmt.Sscanf(claim, "template:%s", &template); n == 1 {
			entry.ResourceClaimName = nil
			if at := slices.Index([]byte(template), '='); at >= 0 {
				template, made = template[:at], template[at+1:]
				p.Status.ResourceClaimStatuses = append(p.Status.ResourceClaimStatuses, v1.PodResourceClaimStatus{Name: entry.Name, ResourceClaimName: &made})
			}
			entry.ResourceClaimTemplateName = &template
		}
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, entry)
	}
	return p
}

func on(p *v1.Pod) *v1.Pod {
	p.Spec.NodeName = "node"
	return p
}

func madeFor(owner string, c *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	c.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
	return c
}

func TestAmount(t *testing.T) {
	notNeeded := pod("a", "template:two")
	notNeeded.Status.ResourceClaimStatuses = []v1.PodResourceClaimStatus{{Name: "entry-0"}}
	requesting := pod("a", "four")
	requesting.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		v1.ResourceCPU: apiresource.MustParse("2"), "alias": apiresource.MustParse("3"),
	}}}}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		want map[string]string
	}{
		"a claim":                          {[]*v1.Pod{pod("a", "four")}, map[string]string{"a": "4 devices/gpu"}},
		"beside what is requested":         {[]*v1.Pod{requesting}, map[string]string{"a": "2 cpu, 7 devices/gpu"}},
		"a claim that does not exist":      {[]*v1.Pod{pod("a", "none", "net")}, map[string]string{"a": "1 devices/net"}},
		"one claim twice":                  {[]*v1.Pod{pod("a", "four", "four")}, map[string]string{"a": "4 devices/gpu"}},
		"from templates":                   {[]*v1.Pod{pod("a", "template:two", "template:two"), pod("b", "template:two")}, map[string]string{"a": "4 devices/gpu", "b": "2 devices/gpu"}},
		"no template":                      {[]*v1.Pod{pod("a", "template:none")}, map[string]string{"a": ""}},
		"the claim that was made":          {[]*v1.Pod{pod("a", "template:two=made-for-a")}, map[string]string{"a": "3 devices/gpu"}},
		"one that was made for another":    {[]*v1.Pod{pod("b", "template:two=made-for-a")}, map[string]string{"b": "2 devices/gpu"}},
		"one that was made and is not yet": {[]*v1.Pod{pod("b", "template:two=to-come")}, map[string]string{"b": "2 devices/gpu"}},
		"one that is not needed":           {[]*v1.Pod{notNeeded}, map[string]string{"a": ""}},
		"a shared claim, while all wait":   {[]*v1.Pod{pod("b", "four"), pod("a", "four"), pod("c", "four")}, map[string]string{"a": "4 devices/gpu", "b": "4 devices/gpu", "c": "4 devices/gpu"}},
		"for one with a node before that":  {[]*v1.Pod{pod("a", "four"), on(pod("c", "four")), on(pod("b", "four"))}, map[string]string{"a": "", "b": "4 devices/gpu", "c": ""}},
	} {
		t.Run(sentence, func(t *testing.T) {
			known := New(classes{})
			known.Set(claim("four", exactly("gpus", "gpu", 4)))
			known.Set(claim("net", exactly("net", "net", 1)))
			known.Set(madeFor("a", claim("made-for-a", exactly("gpus", "gpu", 3))))
			template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "two"}}
			template.Spec.Spec = claim("", exactly("gpus", "gpu", 2)).Spec
			known.SetTemplate(template)
			for _, p := range c.pods {
				known.SetPod(p, "")
			}
			got := map[string]string{}
			for _, p := range c.pods {
				got[p.Name] = known.Amount(p).String()
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("amounts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestChangesTellWhoIsConcerned: each change returns the pods whose amounts are others than before, and nothing is left
// once all are gone.
func TestChangesTellWhoIsConcerned(t *testing.T) {
	known, name := New(classes{}), func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "ns", Name: name} }
	reserved := given(claim("c", exactly("gpus", "gpu", 1)), "gpus")
	reserved.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{UID: "b"}}
	template := &resourceapi.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "t"}}
	for _, step := range []struct {
		do   string
		call func() map[types.UID]bool
		want string
	}{
		{"a pod", func() map[types.UID]bool { return known.SetPod(pod("b", "c", "template:t"), "") }, ""},
		{"an older one", func() map[types.UID]bool { return known.SetPod(pod("a", "c"), "") }, ""},
		{"a younger one", func() map[types.UID]bool { return known.SetPod(pod("d", "c"), "") }, ""},
		{"the claim", func() map[types.UID]bool { return known.Set(claim("c", exactly("gpus", "gpu", 1))) }, "a b d"},
		{"allocated, as it asked for", func() map[types.UID]bool { return known.Set(given(claim("c", exactly("gpus", "gpu", 1)), "gpus")) }, ""},
		{"and reserved", func() map[types.UID]bool { return known.Set(reserved) }, ""},
		{"the younger one has a node", func() map[types.UID]bool { return known.SetPod(on(pod("d", "c")), "") }, "a b"},
		{"the template", func() map[types.UID]bool { return known.SetTemplate(template) }, "b"},
		{"the same again", func() map[types.UID]bool { return known.SetTemplate(template) }, ""},
		{"the pod that counts is gone", func() map[types.UID]bool { return known.DropPod("d") }, "a b"},
		{"the claim is gone", func() map[types.UID]bool { return known.Drop(name("c")) }, "a b"},
		{"it is gone", func() map[types.UID]bool { return known.Drop(name("c")) }, ""},
		{"the template is gone", func() map[types.UID]bool { return known.DropTemplate(name("t")) }, "b"},
		{"a pod is gone", func() map[types.UID]bool { return known.DropPod("b") }, ""},
		{"the last one is", func() map[types.UID]bool { return known.DropPod("a") }, ""},
	} {
		got := ""
		for i, uid := range slices.Sorted(maps.Keys(step.call())) {
			if i > 0 {
				got += " "
			}
			got += string(uid)
		}
		if got != step.want {
			t.Errorf("%s: it concerns %q, want %q", step.do, got, step.want)
		}
	}
	if left := len(known.sources) + len(known.users) + len(known.named); left > 0 {
		t.Errorf("%d entries are left of nothing", left)
	}
}

// TestGangsShareClaims: while nobody has a node, a shared claim counts once for each gang, and for each pod in none.
// Who leaves a gang counts from then on.
func TestGangsShareClaims(t *testing.T) {
	known := New(classes{})
	known.Set(claim("four", exactly("gpus", "gpu", 4)))
	a, b, c := pod("a", "four"), pod("b", "four"), pod("c", "four")
	count := func() (text string) {
		for _, p := range []*v1.Pod{a, b, c} {
			text += fmt.Sprint(known.Amount(p)["devices/gpu"], " ")
		}
		return text
	}
	known.SetPod(a, "train")
	known.SetPod(b, "train")
	known.SetPod(c, "")
	if got := count(); got != "4 0 4 " {
		t.Errorf("of a gang and a pod they count for %s", got)
	}
	if changed := known.SetPod(a, ""); !changed["b"] {
		t.Errorf("that the first of the gang leaves it concerns %v, want b", changed)
	}
	known.SetPod(b, "")
	if got := count(); got != "4 4 4 " {
		t.Errorf("of pods in no gang they count for %s", got)
	}
}

// TestFreed: a claim that several pods have is free with the last of them, in whatever order they end.
func TestFreed(t *testing.T) {
	known := New(classes{})
	known.Set(claim("shared", exactly("gpus", "gpu", 4)))
	known.Set(claim("own", exactly("gpus", "gpu", 1)))
	pods := []*v1.Pod{on(pod("a", "shared", "own")), on(pod("b", "shared")), on(pod("c", "shared")), pod("d", "shared")}
	for _, p := range pods {
		known.SetPod(p, "")
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}} {
		has, got := map[types.UID]bool{"a": true, "b": true, "c": true}, ""
		for _, i := range order {
			delete(has, pods[i].UID)
			freed := known.Amount(pods[i])
			freed.Add(known.Freed(pods[i], func(uid types.UID) bool { return has[uid] }), 1)
			got += fmt.Sprint(freed["devices/gpu"], " ")
		}
		want := map[int]string{0: "1 0 4 ", 2: "0 0 5 ", 1: "0 1 4 "}[order[0]]
		if got != want {
			t.Errorf("in order %v they free %s, want %s", order, got, want)
		}
	}
}
