package podclass

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/storage/volume"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// storageWith returns a storage with these claims, volumes and storage classes.
func storageWith(t *testing.T, objects ...any) Storage {
	t.Helper()
	indexer := func(more cache.Indexers) cache.Indexer {
		indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
		for name, index := range more {
			indexers[name] = index
		}
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
	}
	claims, volumes, classes := indexer(nil), indexer(cache.Indexers{unboundIndex: unboundVolumes}), indexer(nil)
	for _, object := range objects {
		into := claims
		switch object.(type) {
		case *v1.PersistentVolume:
			into = volumes
		case *storagev1.StorageClass:
			into = classes
		}
		must.Succeed(t, into.Add(object))
	}
	return Storage{
		claims: corelisters.NewPersistentVolumeClaimLister(claims), volumes: corelisters.NewPersistentVolumeLister(volumes),
		classes: storagelisters.NewStorageClassLister(classes), unbound: volumes,
	}
}

func claim(name string, change ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), Annotations: map[string]string{}},
		Spec: v1.PersistentVolumeClaimSpec{
			StorageClassName: new("waits"), AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, f := range change {
		f(c)
	}
	return c
}

// bound binds a claim to the volume of its name.
func bound(c *v1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Annotations[volume.AnnBindCompleted] = c.Name, "yes"
}

func pv(name, host string, source v1.PersistentVolumeSource) *v1.PersistentVolume {
	p := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{StorageClassName: "waits", PersistentVolumeSource: source}}
	if host != "" {
		p.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{host}}},
		}}}}
	}
	return p
}

func TestClassesByClaims(t *testing.T) {
	local := v1.PersistentVolumeSource{Local: &v1.LocalVolumeSource{Path: "/disk"}}
	csi := func(driver, handle string) v1.PersistentVolumeSource {
		return v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}}
	}
	mode := func(m storagev1.VolumeBindingMode, name string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, VolumeBindingMode: &m}
	}
	waits, soon := mode(storagev1.VolumeBindingWaitForFirstConsumer, "waits"), mode(storagev1.VolumeBindingImmediate, "soon")
	larger := func(c *v1.PersistentVolumeClaim) {
		c.Spec.Resources.Requests = v1.ResourceList{v1.ResourceStorage: resource.MustParse("2Gi")}
	}
	reserved := pv("p", "n0", local)
	reserved.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "b"}
	exclusive := func(c *v1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	for sentence, c := range map[string]struct {
		objects              []any
		names                [2]string // of the claims
		same, contend, apart bool      // apart: members care about each other
	}{
		"claims of one make that wait are alike":            {objects: []any{waits, claim("a"), claim("b")}, same: true},
		"and contend for volumes that are there":            {objects: []any{waits, claim("a"), claim("b"), pv("p", "n0", local)}, same: true, contend: true},
		"a volume that is somebody's is none of these":      {objects: []any{waits, claim("a"), claim("b"), func() any { p := pv("p", "n0", local); p.Status.Phase = v1.VolumeBound; return p }()}, same: true},
		"one that waits for more differs":                   {objects: []any{waits, claim("a"), claim("b", larger)}},
		"one for which a volume is kept differs":            {objects: []any{waits, claim("a"), claim("b"), reserved}},
		"bound to volumes that any node reaches, are alike": {objects: []any{claim("a", bound), claim("b", bound), pv("a", "", csi("d", "1")), pv("b", "", csi("d", "2"))}, same: true},
		"of different drivers they differ":                  {objects: []any{claim("a", bound), claim("b", bound), pv("a", "", csi("d", "1")), pv("b", "", csi("e", "2"))}},
		"on one node they are alike":                        {objects: []any{claim("a", bound), claim("b", bound), pv("a", "n0", local), pv("b", "n0", local)}, same: true},
		"on different nodes they differ":                    {objects: []any{claim("a", bound), claim("b", bound), pv("a", "n0", local), pv("b", "n1", local)}},
		"of a kind that filters translate they differ":      {objects: []any{claim("a", bound), claim("b", bound), pv("a", "", v1.PersistentVolumeSource{}), pv("b", "", v1.PersistentVolumeSource{})}},
		"bound and waiting differ":                          {objects: []any{waits, claim("a"), claim("b", bound), pv("b", "", csi("d", "1"))}},
		"without a volume for now no place is good":         {objects: []any{soon, claim("a", func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("soon") }), claim("b", func(c *v1.PersistentVolumeClaim) { c.Spec.StorageClassName = new("soon") })}, same: true},
		"one that is not there differs":                     {objects: []any{waits, claim("a")}},
		"one that both have is one":                         {objects: []any{waits, claim("a")}, names: [2]string{"a", "a"}, same: true, contend: true},
		"for one pod at a time, each its own":               {objects: []any{claim("a", bound, exclusive), claim("b", bound, exclusive), pv("a", "", csi("d", "1")), pv("b", "", csi("d", "2"))}},
		"for one pod at a time, and both have it":           {objects: []any{claim("a", bound, exclusive), pv("a", "", csi("d", "1"))}, names: [2]string{"a", "a"}, same: true, apart: true},
	} {
		t.Run(sentence, func(t *testing.T) {
			if c.names[0] == "" {
				c.names = [2]string{"a", "b"}
			}
			group := NewGrouping(storageWith(t, c.objects...))
			var pods []*v1.Pod
			for i, name := range c.names {
				pods = append(pods, st.MakePod().Namespace("ns").Name("p").UID(string(rune('0'+i))).PVC(name).Obj())
				CountClaims(group.Uses, pods[i])
			}
			first, second := mustAdd(t, group, pods[0]), mustAdd(t, group, pods[1])
			if (first == second) != c.same {
				t.Errorf("one class: %v, want %v", first == second, c.same)
			}
			if one := group.Classes[first]; one.Claims.Contends != c.contend && c.same {
				t.Errorf("they contend for volumes: %v, want %v", one.Claims.Contends, c.contend)
			}
			if one := group.Classes[first]; one.Interdependent() != c.apart {
				t.Errorf("they care about each other: %v, want %v", one.Interdependent(), c.apart)
			}
		})
	}
}

// failing is a lister that fails.
type failing struct {
	corelisters.PersistentVolumeClaimLister
}

func (failing) PersistentVolumeClaims(string) corelisters.PersistentVolumeClaimNamespaceLister {
	return failingIn{}
}

type failingIn struct {
	corelisters.PersistentVolumeClaimNamespaceLister
}

var errLookup = errors.New("the cache is on fire")

func (failingIn) Get(string) (*v1.PersistentVolumeClaim, error) { return nil, errLookup }

// TestClaimsThatCannotBeLookedUp: an error is not the answer that a claim is as any other.
func TestClaimsThatCannotBeLookedUp(t *testing.T) {
	group := NewGrouping(Storage{claims: failing{}})
	_, err := group.Classify(st.MakePod().Namespace("ns").Name("p").PVC("a").Obj(), "")
	if !errors.Is(err, errLookup) || !strings.Contains(err.Error(), "claim ns/a of pod p") {
		t.Errorf("error %v, want it to name the claim and wrap %v", err, errLookup)
	}
}
