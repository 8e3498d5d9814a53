package planner

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
)

// supply is the volumes that are left for claims of one make, where none are made.
type supply struct {
	// on counts them by the node that reaches them.
	on []int32
	// local: no volume is reached from two nodes, so what is taken on one is not missing on
	// another.
	local bool
}

// volumeSlots bounds how many more members of a class a node takes by the volumes that reach
// it: those that their claims are bound to, and those that are left for claims that wait,
// where none are made. It knows what members of the plan were given only where volumes are
// counted.
func (w *world) volumeSlots(class, node int) int {
	if !w.reaches(class, node) {
		return 0
	}
	c := w.classes[class]
	if len(c.claims.static) == 0 {
		return math.MaxInt32
	}
	if c.left == nil {
		for _, claim := range c.claims.static {
			c.left = append(c.left, w.supplyFor(claim))
		}
	}
	n := math.MaxInt32
	for _, s := range c.left {
		n = min(n, int(s.on[node]))
	}
	if n > 0 && c.counted != "" {
		n -= w.taken(node, c.counted)
	}
	return max(0, n)
}

// reaches reports whether a node reaches the volumes that the claims of a class are bound to.
func (w *world) reaches(class, node int) bool {
	c := w.classes[class]
	if len(c.claims.reach) == 0 {
		return true
	}
	if c.reached == nil {
		c.reached = make([]bool, w.tx.Len())
		for i := range c.reached {
			on := w.tx.Node(i).Node()
			c.reached[i] = !slices.ContainsFunc(c.claims.reach, func(r reach) bool { return !r.has(on) })
		}
	}
	return c.reached[node]
}

// taken counts the members of the attempt on a node that take a volume of a storage class.
func (w *world) taken(node int, storageClass string) int {
	n := 0
	for _, info := range w.tx.Node(node).GetPods() {
		if w.takes[info.GetPod().UID] == storageClass {
			n++
		}
	}
	return n
}

// countVolumes makes volumes count like a resource of their node where that is enough: each
// member has one claim that waits, for a local volume that is there, and all that want
// volumes of a storage class want the same. Then a member that is placed changes nothing on
// other nodes, and its volume need not be chosen to know what is left.
func (w *world) countVolumes() {
	wanted := map[string]string{} // storage class -> make of the claim
	for _, c := range w.classes {
		if !c.claims.contends {
			continue
		}
		if c.claims.waiting != 1 || len(c.claims.static) != 1 {
			return
		}
		claim := c.claims.static[0]
		name, kind := volume.GetPersistentVolumeClaimClass(claim), makeOf(claim)
		if other, ok := wanted[name]; ok && other != kind || claim.Annotations[volume.AnnSelectedNode] != "" || !w.supplyFor(claim).local {
			return
		}
		wanted[name] = kind
	}
	w.takes = map[types.UID]string{}
	for _, c := range w.classes {
		if c.claims.contends {
			c.counted = volume.GetPersistentVolumeClaimClass(c.claims.static[0])
		}
	}
	for member, class := range w.classOf {
		if name := w.classes[class].counted; name != "" {
			w.takes[w.pods[member].UID] = name
		}
	}
}

// makeOf returns what is common to claims that the same volumes are good for.
func makeOf(claim *v1.PersistentVolumeClaim) string {
	data, err := json.Marshal(&claim.Spec)
	if err != nil { // API types always marshal
		return claim.Namespace + "/" + claim.Name
	}
	return string(data)
}

// supplyFor counts the volumes that are good for a claim and that no claim has yet.
func (w *world) supplyFor(claim *v1.PersistentVolumeClaim) *supply {
	kind := makeOf(claim)
	if known, ok := w.supplies[kind]; ok {
		return known
	}
	s := &supply{on: make([]int32, w.tx.Len()), local: true}
	volumes, err := w.storage.unboundOf(volume.GetPersistentVolumeClaimClass(claim))
	if err != nil { // the filters know
		s = &supply{on: slices.Repeat([]int32{math.MaxInt32}, w.tx.Len())}
	}
	find := w.finder()
	for _, pv := range volumes {
		found, err := volume.FindMatchingVolume(claim, []*v1.PersistentVolume{pv}, nil, nil, false, true)
		if err != nil || found == nil || !volume.CheckAccessModes(claim, pv) {
			continue
		}
		nodes, ok := find(pv)
		if !ok {
			continue // no filter lets it be used
		}
		s.local = s.local && len(nodes) <= 1
		for _, node := range nodes {
			s.on[node]++
		}
	}
	if w.supplies == nil {
		w.supplies = map[string]*supply{}
	}
	w.supplies[kind] = s
	return s
}

// finder returns a function that lists the nodes from which a volume is reached. False: its
// affinity cannot be read.
func (w *world) finder() func(*v1.PersistentVolume) ([]int, bool) {
	byLabel := map[string]map[string][]int{}
	nodesWith := func(key string) map[string][]int {
		if byLabel[key] == nil {
			byLabel[key] = map[string][]int{}
			for i := range w.tx.Len() {
				if value, ok := w.Label(i, key); ok {
					byLabel[key][value] = append(byLabel[key][value], i)
				}
			}
		}
		return byLabel[key]
	}
	return func(pv *v1.PersistentVolume) (nodes []int, ok bool) {
		var r reach
		if affinity := pv.Spec.NodeAffinity; affinity != nil && affinity.Required != nil {
			var err error
			if r, err = reachOf(affinity.Required); err != nil {
				return nil, false
			}
		}
		if r.key != "" {
			for _, value := range r.values {
				nodes = append(nodes, nodesWith(r.key)[value]...)
			}
			return nodes, true
		}
		for i := range w.tx.Len() {
			if r.selector == nil || r.selector.Match(w.tx.Node(i).Node()) {
				nodes = append(nodes, i)
			}
		}
		return nodes, true
	}
}

// unboundOf lists the volumes of a storage class that no claim has yet.
func (s storage) unboundOf(class string) ([]*v1.PersistentVolume, error) {
	objects, err := s.unbound.ByIndex(unboundIndex, ofClass(class))
	if err != nil {
		return nil, fmt.Errorf("listing unbound volumes of class %s: %w", class, err)
	}
	volumes := make([]*v1.PersistentVolume, 0, len(objects))
	for _, object := range objects {
		if pv, ok := object.(*v1.PersistentVolume); ok {
			volumes = append(volumes, pv)
		}
	}
	return volumes, nil
}
