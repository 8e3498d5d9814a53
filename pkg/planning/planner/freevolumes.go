package planner

import (
	"encoding/json"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
)

// supply is the free volumes for claims of one spec, of a storage class that provisions none.
type supply struct {
	// on counts them by the node that reaches them.
	on []int32
	// local: each volume is reachable from one node at most, so taking one affects no other node.
	local bool
}

// volumeSlots bounds how many more members of a class a node takes by the volumes that it reaches: those that claims
// are bound to, and the free ones for waiting claims if none are provisioned. It subtracts what planned members take
// only where volumes are counted.
func (w *planState) volumeSlots(class, node int) int {
	if !w.reaches(class, node) {
		return 0
	}
	c := w.classes[class]
	if len(c.Claims.Static) == 0 {
		return math.MaxInt32
	}
	if c.suppliesLeft == nil {
		for _, claim := range c.Claims.Static {
			c.suppliesLeft = append(c.suppliesLeft, w.supplyFor(claim))
		}
	}
	n := math.MaxInt32
	for _, s := range c.suppliesLeft {
		n = min(n, int(s.on[node]))
	}
	if n > 0 && c.counted != "" {
		n -= w.volumesTaken(node, c.counted)
	}
	return max(0, n)
}

// reaches reports whether a node reaches the volumes that the claims of a class are bound to.
func (w *planState) reaches(class, node int) bool {
	c := w.classes[class]
	if len(c.Claims.Reach) == 0 {
		return true
	}
	if c.reached == nil {
		c.reached = make([]bool, w.tx.Len())
		for i := range c.reached {
			on := w.tx.Node(i).Node()
			c.reached[i] = !slices.ContainsFunc(c.Claims.Reach, func(r podclass.Reach) bool { return !r.ReachedFrom(on) })
		}
	}
	return c.reached[node]
}

// volumesTaken counts the members of the attempt on a node that take a volume of a storage class.
func (w *planState) volumesTaken(node int, storageClass string) int {
	n := 0
	for _, info := range w.tx.Node(node).GetPods() {
		if w.volumeTakenBy[info.GetPod().UID] == storageClass {
			n++
		}
	}
	return n
}

// countVolumes treats volumes like a resource of their node if that is exact: each member has one waiting claim for an
// existing local volume, and all claims of a storage class have the same spec. Then placing a member changes nothing on
// other nodes, and no volume needs to be chosen to know what is left.
func (w *planState) countVolumes() {
	wanted := map[string]string{} // storage class -> spec of the claim
	for _, c := range w.classes {
		if !c.Claims.Contends {
			continue
		}
		if c.Claims.Waiting != 1 || len(c.Claims.Static) != 1 {
			return
		}
		claim := c.Claims.Static[0]
		name, kind := volume.GetPersistentVolumeClaimClass(claim), specKeyOf(claim)
		if other, ok := wanted[name]; ok && other != kind || claim.Annotations[volume.AnnSelectedNode] != "" ||
			!w.supplyFor(claim).local {
			return
		}
		wanted[name] = kind
	}
	w.volumeTakenBy = map[types.UID]string{}
	for _, c := range w.classes {
		if c.Claims.Contends {
			c.counted = volume.GetPersistentVolumeClaimClass(c.Claims.Static[0])
		}
	}
	for member, class := range w.classOf {
		if name := w.classes[class].counted; name != "" {
			w.volumeTakenBy[w.pods[member].UID] = name
		}
	}
}

// specKeyOf returns a key that claims share if the same volumes suit them.
func specKeyOf(claim *v1.PersistentVolumeClaim) string {
	data, err := json.Marshal(&claim.Spec)
	if err != nil { // API types always marshal
		return claim.Namespace + "/" + claim.Name
	}
	return string(data)
}

// supplyFor counts the unclaimed volumes that suit a claim.
func (w *planState) supplyFor(claim *v1.PersistentVolumeClaim) *supply {
	kind := specKeyOf(claim)
	if known, ok := w.supplies[kind]; ok {
		return known
	}
	s := &supply{on: make([]int32, w.tx.Len()), local: true}
	volumes, err := w.storage.Unbound(volume.GetPersistentVolumeClaimClass(claim))
	if err != nil { // the filters report it
		s = &supply{on: slices.Repeat([]int32{math.MaxInt32}, w.tx.Len())}
	}
	for _, pv := range volumes {
		found, err := volume.FindMatchingVolume(claim, []*v1.PersistentVolume{pv}, nil, nil, false, true)
		if err != nil || found == nil || !volume.CheckAccessModes(claim, pv) {
			continue
		}
		nodes, ok := w.reaching(pv)
		if !ok {
			continue // no filter lets it be used
		}
		s.local = s.local && len(nodes) <= 1
		for _, node := range nodes {
			s.on[node]++
		}
	}
	w.supplies[kind] = s
	return s
}

// reaching lists the nodes that reach a volume; false if its affinity cannot be parsed.
func (w *planState) reaching(pv *v1.PersistentVolume) (nodes []int, ok bool) {
	var r podclass.Reach
	if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
		var err error
		if r, err = podclass.NewReach(affinity.Required); err != nil {
			return nil, false
		}
	}
	if r.Key != "" {
		for _, value := range r.Values {
			nodes = append(nodes, w.nodesByDomain(r.Key)[value]...)
		}
		return nodes, true
	}
	for i := range w.tx.Len() {
		if r.Selector == nil || r.Selector.Match(w.tx.Node(i).Node()) {
			nodes = append(nodes, i)
		}
	}
	return nodes, true
}
