package cacheevents

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/dra"
)

func TestFrees(t *testing.T) {
	for sentence, c := range map[string]struct {
		event fwk.ClusterEvent
		want  bool
	}{
		"a pod has left its node":    {fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, true},
		"or takes less of it":        {fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.UpdatePodScaleDown}, true},
		"one has come":               {fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Add}, false},
		"nobody says what changed":   {fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Update}, false},
		"one that waited is deleted": {fwk.ClusterEvent{Resource: fwk.UnscheduledPod, ActionType: fwk.Delete}, false},
	} {
		if got := Frees(c.event); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
}

func TestEnds(t *testing.T) {
	runs := func() *v1.Pod { return st.MakePod().Name("p").Node("n").Obj() }
	ends := func(evicting v1.ConditionStatus) *v1.Pod {
		pod := st.MakePod().Name("p").Node("n").Terminating().Obj()
		if evicting != "" {
			pod.Status.Conditions = []v1.PodCondition{{Type: v1alpha1.PodEvicting, Status: evicting}}
		}
		return pod
	}
	for sentence, c := range map[string]struct {
		before, after any
		want          bool
	}{
		"somebody deletes it":                {runs(), ends(""), true},
		"who was to be evicted, and was not": {runs(), ends(v1.ConditionFalse), true},
		"it is evicted for a preemptor":      {runs(), ends(v1.ConditionTrue), false},
		"it ends already":                    {ends(""), ends(""), false},
		"it runs on":                         {runs(), runs(), false},
		"it comes, and ends":                 {nil, ends(""), false},
		"it is gone":                         {ends(""), nil, false},
	} {
		if got := Ends(c.before, c.after); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
}

func TestHelps(t *testing.T) {
	node := st.MakeNode().Name("n").Obj()
	for sentence, c := range map[string]struct {
		event         fwk.ClusterEvent
		before, after any
		want          bool
	}{
		"a node has come":         {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, node, true},
		"a node is as it was":     {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.UpdateNodeLabel}, node, node, false},
		"a claim is as it was":    {fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Update}, dra.Claim("c", 1), dra.Claim("c", 1), false},
		"there are more devices":  {fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add}, nil, dra.Slice("n", 2), true},
		"a pod has left its node": {fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, st.MakePod().Obj(), nil, false},
	} {
		if got := Helps(c.event, c.before, c.after); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
}

func TestFreesDevices(t *testing.T) {
	held := dra.Held(dra.Claim("c", 1), "n", 0, "user")
	changed := fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Update}
	for sentence, c := range map[string]struct {
		event         fwk.ClusterEvent
		before, after any
		want          bool
	}{
		"a claim gives back its devices": {changed, held, dra.Claim("c", 1), true},
		"a claim with devices goes":      {fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Delete}, held, nil, true},
		"a claim is created":             {fwk.ClusterEvent{Resource: fwk.ResourceClaim, ActionType: fwk.Add}, nil, dra.Claim("c", 1), false},
		"a claim gets devices":           {changed, dra.Claim("c", 1), held, false},
		"there are more devices":         {fwk.ClusterEvent{Resource: fwk.ResourceSlice, ActionType: fwk.Add}, nil, dra.Slice("n", 2), true},
		"a node has come":                {fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, nil, st.MakeNode().Obj(), false},
	} {
		if got := FreesDevices(c.event, c.before, c.after); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
}

func TestNodeHelps(t *testing.T) {
	node := func(change func(*v1.Node)) *v1.Node {
		n := st.MakeNode().Name("n").Label("a", "b").Capacity(map[v1.ResourceName]string{v1.ResourceCPU: "1"}).Obj()
		if change != nil {
			change(n)
		}
		return n
	}
	for sentence, c := range map[string]struct {
		change func(*v1.Node)
		want   bool
	}{
		"nothing that matters":         {nil, false},
		"a heartbeat":                  {func(n *v1.Node) { n.Status.Conditions = []v1.NodeCondition{{LastHeartbeatTime: metav1.Now()}} }, false},
		"an annotation of others":      {func(n *v1.Node) { n.Annotations = map[string]string{"example.com/seen": "now"} }, false},
		"one that our plugins read":    {func(n *v1.Node) { n.Annotations = map[string]string{"scheduling.lockstep.dev/cards": "8"} }, true},
		"a label":                      {func(n *v1.Node) { n.Labels["a"] = "c" }, true},
		"a taint":                      {func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "x"}} }, true},
		"what it has":                  {func(n *v1.Node) { n.Status.Allocatable[v1.ResourceCPU] = n.Status.Capacity[v1.ResourceMemory] }, true},
		"that it takes pods, or stops": {func(n *v1.Node) { n.Spec.Unschedulable = true }, true},
	} {
		if got := nodeHelps(node(nil), node(c.change)); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
	if !nodeHelps(nil, node(nil)) {
		t.Error("a node that comes does not help")
	}
}

func ofPod(claim *resourceapi.ResourceClaim) *resourceapi.ResourceClaim {
	claim = claim.DeepCopy()
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "p", Controller: new(true)}}
	return claim
}

func TestClaimHelps(t *testing.T) {
	free, taken, shared := dra.Claim("c", 1), dra.Held(dra.Claim("c", 1), "n", 0, "user"), dra.Held(dra.Claim("c", 1), "n", 0, "user", "other")
	made := ofPod(free)
	made.Annotations = map[string]string{resourceapi.ExtendedResourceClaimAnnotation: "true"}
	var none *resourceapi.ResourceClaim
	for sentence, c := range map[string]struct {
		before, after *resourceapi.ResourceClaim
		want          bool
	}{
		"it comes":                                     {none, free, true},
		"it is allocated, for all":                     {free, taken, true},
		"it is allocated to a pod":                     {ofPod(free), ofPod(taken), false},
		"somebody else has it":                         {taken, shared, false},
		"and gives it back":                            {shared, taken, true},
		"it is free again":                             {taken, free, true},
		"it goes, and had none":                        {free, none, false},
		"it was made for extended resources, and goes": {made, none, true},
		"it goes with what it had":                     {taken, none, true},
	} {
		if got := claimHelps(c.before, c.after); got != c.want {
			t.Errorf("%s: %t, want %t", sentence, got, c.want)
		}
	}
}
