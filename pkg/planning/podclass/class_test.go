package podclass

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const gpu = v1.ResourceName("nvidia.com/gpu")

// irrelevant are the fields of a PodSpec in which members of one class may differ, and
// why. A field that is neither here nor distinguished by the class fails
// TestClassesTellApartWhatMatters; so does a field that a new version of Kubernetes
// brings.
var irrelevant = map[string]string{
	"RestartPolicy":                      "it says what happens to containers that end",
	"TerminationGracePeriodSeconds":      "it says how the pod ends",
	"ActiveDeadlineSeconds":              "it says when the pod ends",
	"DNSPolicy":                          "names are resolved on any node",
	"DNSConfig":                          "names are resolved on any node",
	"HostAliases":                        "names are resolved on any node",
	"Hostname":                           "it is the pod's own name",
	"HostnameOverride":                   "it is the pod's own name",
	"Subdomain":                          "it is the pod's own name",
	"SetHostnameAsFQDN":                  "it is the pod's own name",
	"ServiceAccountName":                 "it says what the pod may do",
	"DeprecatedServiceAccount":           "it says what the pod may do",
	"AutomountServiceAccountToken":       "it says what the pod may do",
	"ImagePullSecrets":                   "it says what the pod may pull",
	"SecurityContext":                    "no plugin of the scheduler reads it",
	"HostPID":                            "every node has process IDs",
	"HostIPC":                            "every node has IPC",
	"ShareProcessNamespace":              "every node has process IDs",
	"EnableServiceLinks":                 "it is about environment variables",
	"ReadinessGates":                     "it says when the pod is ready",
	"PreemptionPolicy":                   "a gang preempts as a whole or not at all",
	"EvictionResponders":                 "it is about pods that run",
	"ResourceClaims[].Name":              "it tells claims apart, not pods",
	"ResourceClaims[].ResourceClaimName": "what the claim asks for counts",
	"ResourceClaims[].ResourceClaimTemplateName": "what the claim that is made of it asks for counts",
	"Volumes[].Name":                  "it tells volumes apart, not pods",
	"SchedulingGates":                 "a member that has gates is not planned",
	"SchedulingGroup":                 "it is the gang, and all members have the same",
	"PriorityClassName":               "its value counts",
	"Tolerations[].TolerationSeconds": "it says how long the pod stays on a node that gets a taint",

	"Volumes[].VolumeSource.HostPath":    "every node has a file system",
	"Volumes[].VolumeSource.EmptyDir":    "it counts nowhere but in requests",
	"Volumes[].VolumeSource.Secret":      "it is mounted on any node",
	"Volumes[].VolumeSource.ConfigMap":   "it is mounted on any node",
	"Volumes[].VolumeSource.Projected":   "it is mounted on any node",
	"Volumes[].VolumeSource.DownwardAPI": "it is mounted on any node",

	"Volumes[].VolumeSource.NFS":                  "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.CSI":                  "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.FC":                   "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.CephFS":               "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.Glusterfs":            "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.FlexVolume":           "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.Flocker":              "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.GitRepo":              "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.Quobyte":              "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.ScaleIO":              "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.StorageOS":            "no plugin of the scheduler reads it",
	"Volumes[].VolumeSource.PhotonPersistentDisk": "no plugin of the scheduler reads it",
}

// irrelevantInContainers is the same for the fields of a container.
var irrelevantInContainers = map[string]string{
	"Name":                             "it tells containers apart, not pods",
	"Command":                          "it says what runs",
	"Args":                             "it says what runs",
	"WorkingDir":                       "it says what runs",
	"EnvFrom":                          "it says what runs",
	"Env":                              "it says what runs; indexed jobs number their pods here",
	"Ports[].Name":                     "it tells ports apart, not pods",
	"Ports[].ContainerPort":            "a pod has an address of its own",
	"Resources.Claims":                 "the pod's claims count",
	"ResizePolicy":                     "it is about pods that run",
	"VolumeMounts[].Name":              "the pod's volumes count",
	"VolumeMounts[].ReadOnly":          "the pod's volumes count",
	"VolumeMounts[].RecursiveReadOnly": "the pod's volumes count",
	"VolumeMounts[].MountPath":         "it is a place inside the container",
	"VolumeMounts[].SubPath":           "it is a place inside the volume",
	"VolumeMounts[].SubPathExpr":       "it is a place inside the volume",
	"VolumeMounts[].MountPropagation":  "it is about mounts inside the container",
	"VolumeDevices":                    "the pod's volumes count",
	"LivenessProbe":                    "it is about pods that run",
	"ReadinessProbe":                   "it is about pods that run",
	"StartupProbe":                     "it is about pods that run",
	"Lifecycle":                        "it is about pods that run",
	"TerminationMessagePath":           "it says how the pod ends",
	"TerminationMessagePolicy":         "it says how the pod ends",
	"ImagePullPolicy":                  "where the image is counts, not when it is pulled",
	"SecurityContext":                  "no plugin of the scheduler reads it",
	"Stdin":                            "it says what runs",
	"StdinOnce":                        "it says what runs",
	"TTY":                              "it says what runs",
}

func TestClassesTellApartWhatMatters(t *testing.T) {
	reasons := map[string]string{}
	for field, reason := range irrelevant {
		reasons[field] = reason
	}
	for field, reason := range irrelevantInContainers {
		reasons["Containers[]."+field] = reason
		reasons["InitContainers[]."+field] = reason
	}
	used := map[string]bool{}
	group := NewGrouping(storageWith(t))
	group.Images = true
	for _, base := range fullPods() {
		want := hashOf(t, group, base)
		for path, hashes := range hashesByChange(t, group, base) {
			apart := slices.ContainsFunc(hashes, func(hash uint64) bool { return hash != want })
			field, excused := excuse(reasons, path)
			switch {
			case excused && apart:
				t.Errorf("%s is said not to matter (%s), and tells classes apart", path, reasons[field])
			case !excused && !apart:
				t.Errorf("pods that differ in %s are one class, and nothing says why", path)
			}
			used[field] = true
		}
	}
	for field := range reasons {
		if !used[field] {
			t.Errorf("%s is said not to matter, and does not exist", field)
		}
	}
}

// excuse finds the field, or one that it is part of, among those that do not matter.
func excuse(reasons map[string]string, path string) (string, bool) {
	for field := range reasons {
		if rest, ok := strings.CutPrefix(path, field); ok && (rest == "" || strings.ContainsAny(rest[:1], ".[{")) {
			return field, true
		}
	}
	return "", false
}

func hashOf(t *testing.T, g *Grouping, pod *v1.Pod) uint64 {
	t.Helper()
	claims, err := g.storage.ReadClaims(pod, nil)
	must.Succeed(t, err)
	return g.hash(pod, "", claims, nil)
}

func mustAdd(t *testing.T, g *Grouping, pod *v1.Pod) int {
	t.Helper()
	class, err := g.Classify(pod, "")
	must.Succeed(t, err)
	return class
}

// fullPods returns pods that have everything that a pod can have, each with another
// source of its volume, since a volume has one only.
func fullPods() []*v1.Pod {
	var pods []*v1.Pod
	source := reflect.TypeFor[v1.VolumeSource]()
	for i := range source.NumField() {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod"}}
		fillIn(reflect.ValueOf(&pod.Spec).Elem())
		all := reflect.ValueOf(&pod.Spec.Volumes[0].VolumeSource).Elem()
		for j := range source.NumField() {
			if j != i {
				all.Field(j).SetZero()
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

// fillIn sets everything in v to something, and everything to much the same.
func fillIn(v reflect.Value) {
	if setLeaf(v, 1) {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillIn(key)
		fillIn(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fillIn(v.Field(i))
		}
	default:
		panic(fmt.Sprintf("a pod has a %s", v.Type()))
	}
}

// setLeaf sets a value that has no parts to the nth of its values. It returns false for
// one that has parts.
func setLeaf(v reflect.Value, n int) bool {
	switch v.Addr().Interface().(type) {
	case *resource.Quantity:
		v.Set(reflect.ValueOf(*resource.NewQuantity(int64(n), resource.DecimalSI)))
		return true
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.Unix(int64(n), 0)))
		return true
	case *metav1.FieldsV1:
		v.Set(reflect.ValueOf(*metav1.NewFieldsV1(fmt.Sprintf("[%d]", n))))
		return true
	case *intstr.IntOrString:
		v.Set(reflect.ValueOf(intstr.FromInt32(int32(n))))
		return true
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprint("v", n))
	case reflect.Bool:
		v.SetBool(n == 1)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(int64(n))
	case reflect.Uint8:
		v.SetUint(uint64(n))
	default:
		return false
	}
	return true
}

// hashesByChange hashes a pod with one field changed, field by field.
func hashesByChange(t *testing.T, group *Grouping, pod *v1.Pod) map[string][]uint64 {
	hashes := map[string][]uint64{}
	vary(reflect.ValueOf(&pod.Spec).Elem(), "", func(path string, change, restore func()) {
		change()
		hashes[path] = append(hashes[path], hashOf(t, group, pod))
		restore()
	})
	return hashes
}

// vary visits every change of one value in v.
func vary(v reflect.Value, path string, visit func(path string, change, restore func())) {
	before := reflect.New(v.Type()).Elem()
	before.Set(v)
	restore := func() { v.Set(before) }
	if setLeaf(v, 2) {
		restore()
		visit(path, func() { setLeaf(v, 2) }, restore)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return
		}
		if v.Elem().Kind() != reflect.Struct {
			visit(path, v.SetZero, restore)
		}
		vary(v.Elem(), path, visit)
	case reflect.Slice:
		for i := range v.Len() {
			element := v.Index(i)
			if element.Kind() != reflect.Struct {
				visit(path, v.SetZero, restore)
			}
			vary(element, path+"[]", visit)
		}
	case reflect.Map:
		visit(path+"{}", v.SetZero, restore)
	case reflect.Struct:
		for i := range v.NumField() {
			vary(v.Field(i), strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), visit)
		}
	}
}

func TestClassesByMetadata(t *testing.T) {
	base := func() *st.PodWrapper {
		return st.MakePod().Namespace("ns").Name("train-0").UID("0").Label("app", "train").Annotation("note", "a").Req(map[v1.ResourceName]string{gpu: "1"})
	}
	type change = func(pod *st.PodWrapper)
	for sentence, c := range map[string]struct {
		change change
		same   bool
	}{
		"another name and UID are of the same class":   {func(p *st.PodWrapper) { p.Name("train-1").UID("1") }, true},
		"so are other annotations":                     {func(p *st.PodWrapper) { p.Annotation("note", "b") }, true},
		"and other labels, if nothing selects by them": {func(p *st.PodWrapper) { p.Label("app", "other") }, true},
		"another role is not":                          {func(p *st.PodWrapper) { p.Label(v1alpha1.RoleLabel, "leader") }, false},
		"nor another namespace":                        {func(p *st.PodWrapper) { p.Namespace("other") }, false},
		"nor one more container that asks for nothing": {func(p *st.PodWrapper) { p.Container("image") }, false},
		"nor a request that moved to another resource": {func(p *st.PodWrapper) {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"other": resource.MustParse("1")}
		}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			group, other := NewGrouping(storageWith(t)), base()
			c.change(other)
			if same := mustAdd(t, group, base().Obj()) == mustAdd(t, group, other.Obj()); same != c.same {
				t.Errorf("one class: %v, want %v", same, c.same)
			}
		})
	}
}

// TestGrantedClasses: members are distinguished by what is held for them, in whatever order that is named.
func TestGrantedClasses(t *testing.T) {
	one, two := hold.Holder{Group: "one"}, hold.Holder{Group: "two"}
	group := NewGrouping(storageWith(t))
	group.Granters = []ledger.Granter{granting{"a": {one}, "b": {two, one, one}, "c": {one}}, granting{"a": {two}}}
	var classes []int
	for _, name := range []string{"a", "b", "c", "d"} {
		class, err := group.Classify(st.MakePod().Name(name).Obj(), "")
		must.Succeed(t, err)
		classes = append(classes, class)
	}
	if !slices.Equal(classes, []int{0, 0, 1, 2}) {
		t.Errorf("classes %v", classes)
	}
}

type granting map[string][]hold.Holder

func (g granting) Grants(pod *v1.Pod) []hold.Holder { return g[pod.Name] }
