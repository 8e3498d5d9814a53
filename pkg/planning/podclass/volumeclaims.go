package podclass

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/ephemeral"
	"k8s.io/component-helpers/storage/volume"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// Storage looks up claims and volumes in informer caches.
type Storage struct {
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	// devices are ResourceClaims; nil if the scheduler has no DRA manager.
	devices fwk.ResourceClaimTracker
	// unbound indexes the volumes that are not bound; see unboundVolumes.
	unbound cache.Indexer
}

// StorageOf returns the storage of a profile.
func StorageOf(fw framework.Framework) Storage {
	core := fw.SharedInformerFactory().Core().V1()
	s := Storage{
		claims: core.PersistentVolumeClaims().Lister(), volumes: core.PersistentVolumes().Lister(),
		classes: fw.SharedInformerFactory().Storage().V1().StorageClasses().Lister(),
		unbound: core.PersistentVolumes().Informer().GetIndexer(),
	}
	if manager := fw.SharedDRAManager(); manager != nil {
		s.devices = manager.ResourceClaims()
	}
	if _, ok := s.unbound.GetIndexers()[unboundIndex]; !ok { // otherwise another planner added it
		// It fails once the informer has stopped. Look-ups report that there is no index.
		_ = core.PersistentVolumes().Informer().AddIndexers(cache.Indexers{unboundIndex: unboundVolumes})
	}
	return s
}

const unboundIndex = "lockstep.dev/unbound"

// unboundVolumes indexes volumes without a claim by their class, and volumes reserved for one claim by that claim.
func unboundVolumes(object any) ([]string, error) {
	pv, ok := object.(*v1.PersistentVolume)
	switch {
	case !ok || pv.Status.Phase == v1.VolumeBound:
		return nil, nil
	case pv.Spec.ClaimRef == nil:
		return []string{ofClass(volume.GetPersistentVolumeClass(pv))}, nil
	default:
		return []string{ofClaim(pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name)}, nil
	}
}

func ofClass(name string) string            { return "class/" + name }
func ofClaim(namespace, name string) string { return "claim/" + namespace + "/" + name }

func (s Storage) anyUnbound(value string) (bool, error) {
	keys, err := s.unbound.IndexKeys(unboundIndex, value)
	if err != nil {
		return false, fmt.Errorf("looking for unbound volumes: %w", err)
	}
	return len(keys) > 0, nil
}

// Claims is what a pod's claims mean for the nodes it may go to. Members whose claims have the same shape are alike:
// their volumes are reachable from the same nodes, or their claims wait for the same volumes.
type Claims struct {
	// Any: there are claims. Members of a class may have different ones.
	Any bool
	// shape is what scheduling reads of them.
	shape []any
	// Contends: what one member gets, others may want.
	Contends bool
	// Exclusive: another member uses the same claim, which allows one pod at a time.
	Exclusive bool
	// Reach is which nodes the volumes are reachable from.
	Reach []Reach
	// Waiting counts the claims that wait for their first consumer. Static are those whose storage class provisions no
	// volumes: they need one that exists.
	Waiting int
	Static  []*v1.PersistentVolumeClaim
	// Devices is, by device class, the least number of devices that a member is allocated.
	Devices map[string]int64
}

// claimsOf returns the claim name of each volume of a pod; empty for a volume without a claim.
func claimsOf(pod *v1.Pod) []string {
	var names []string
	for i := range pod.Spec.Volumes {
		name := ""
		switch v := &pod.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			name = v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = ephemeral.VolumeClaimName(pod, v)
		}
		names = append(names, name)
	}
	return names
}

// ClaimKey is a claim by namespace and name.
type ClaimKey struct{ namespace, name string }

// ReadClaims reads the claims of a pod. uses counts the pods of the attempt that have each.
func (s Storage) ReadClaims(pod *v1.Pod, uses map[ClaimKey]int) (Claims, error) {
	var c Claims
	if err := s.readDevices(&c, pod, uses); err != nil {
		return Claims{}, err
	}
	for i, name := range claimsOf(pod) {
		if name == "" {
			continue
		}
		c.Any = true
		key := ClaimKey{pod.Namespace, name}
		claim, err := s.claims.PersistentVolumeClaims(key.namespace).Get(key.name)
		switch {
		case err == nil:
			err = s.readClaim(&c, claim, uses[key] > 1)
		case apierrors.IsNotFound(err) && pod.Spec.Volumes[i].Ephemeral != nil:
			c.shape, err = append(c.shape, "to be made"), nil // no pod is placed before the claim exists
		case apierrors.IsNotFound(err):
			c.shape, err = append(c.shape, "missing", name), nil
		}
		if err != nil {
			return Claims{}, fmt.Errorf("reading claim %s/%s of pod %s: %w", key.namespace, key.name, pod.Name, err)
		}
	}
	return c, nil
}

// readClaim adds one claim to c. A claim that is unlike all others goes by its name; so does an invalid one, which the
// volume filters report.
func (s Storage) readClaim(c *Claims, claim *v1.PersistentVolumeClaim, shared bool) error {
	byName := func() { c.shape = append(c.shape, "claim", claim.Name) }
	if slices.Contains(claim.Spec.AccessModes, v1.ReadWriteOncePod) {
		c.Exclusive = c.Exclusive || shared
		byName()
	} else if shared || claim.DeletionTimestamp != nil || claim.Status.Phase == v1.ClaimLost {
		byName()
	}
	if claim.Spec.VolumeName != "" {
		return s.readBound(c, claim, byName)
	}
	return s.readWaiting(c, claim, shared, byName)
}

// readBound adds a claim that has its volume.
func (s Storage) readBound(c *Claims, claim *v1.PersistentVolumeClaim, byName func()) error {
	if _, done := claim.Annotations[volume.AnnBindCompleted]; !done {
		c.shape = append(c.shape, "binding") // no pod with such a claim is placed
		return nil
	}
	pv, err := s.volumes.Get(claim.Spec.VolumeName)
	switch {
	case apierrors.IsNotFound(err):
		byName()
		return nil
	case err != nil:
		return fmt.Errorf("reading its volume %s: %w", claim.Spec.VolumeName, err)
	case pv.Spec.CSI == nil && pv.Spec.Local == nil:
		byName() // the filters translate some of these, with what they ask of nodes
		return nil
	}
	driver, zones := "", map[string]string{}
	if pv.Spec.CSI != nil {
		driver = pv.Spec.CSI.Driver
	}
	for _, label := range [...]string{v1.LabelTopologyZone, v1.LabelTopologyRegion, v1.LabelFailureDomainBetaZone,
		v1.LabelFailureDomainBetaRegion} {
		if value, ok := pv.Labels[label]; ok {
			zones[label] = value
		}
	}
	c.shape = append(c.shape, "bound", driver, zones, pv.Spec.NodeAffinity)
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return nil
	}
	if r, err := NewReach(pv.Spec.NodeAffinity.Required); err == nil { // else the filters report it
		c.Reach = append(c.Reach, r)
	}
	return nil
}

// readWaiting adds a claim that has no volume yet.
func (s Storage) readWaiting(c *Claims, claim *v1.PersistentVolumeClaim, shared bool, byName func()) error {
	class := volume.GetPersistentVolumeClaimClass(claim)
	delayed, err := volume.IsDelayBindingMode(claim, s.classes)
	switch {
	case err != nil:
		return fmt.Errorf("reading its storage class %s: %w", class, err)
	case !delayed:
		c.shape = append(c.shape, "unbound") // no pod with such a claim is placed
		return nil
	}
	free, err := s.anyUnbound(ofClass(class))
	if err != nil {
		return err
	}
	own, err := s.anyUnbound(ofClaim(claim.Namespace, claim.Name))
	if err != nil {
		return err
	}
	if own {
		byName()
	}
	c.Contends = c.Contends || free || own || shared
	if kind, err := s.classes.Get(class); err == nil &&
		kind.Provisioner == volume.NotSupportedProvisioner && !own && !shared {
		c.Static = append(c.Static, claim)
	}
	c.Waiting++
	c.shape = append(c.shape, "waiting", class, claim.Spec, claim.Annotations[volume.AnnSelectedNode])
	return nil
}

// CountClaims counts the claims of a pod in uses.
func CountClaims(uses map[ClaimKey]int, pod *v1.Pod) {
	for _, name := range claimsOf(pod) {
		if name != "" {
			uses[ClaimKey{pod.Namespace, name}]++
		}
	}
	for i := range pod.Spec.ResourceClaims {
		if name := deviceClaim(pod, i); name != "" {
			uses[deviceKey(pod, name)]++
		}
	}
}

// Unbound lists the unclaimed volumes of a storage class.
func (s Storage) Unbound(class string) ([]*v1.PersistentVolume, error) {
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
