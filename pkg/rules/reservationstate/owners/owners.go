// Package owners finds what is held for a pod: the entries whose owners' descriptions match it.
// Values in, values out; it knows neither clock nor client nor lock.
package owners

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Owner describes pods. All fields that are set have to match; an Owner with none set matches no
// pod.
type Owner struct {
	// Pod is the UID of one pod, and not of another one with its name; empty for any.
	Pod types.UID
	// Named is the name of a pod, also of one that is created again; empty for any.
	Named types.NamespacedName
	// Controller is the controller of the pods; nil for any.
	Controller *Controller
	// Selector matches labels of pods in Namespace; nil for all.
	Selector  labels.Selector
	Namespace string
	// Gang is the gang of the pods; nil for any.
	Gang *gangspec.Key
}

// Controller is a controller of pods.
type Controller struct {
	Group, Kind, Namespace, Name string
	// UID is that of one object; empty for any object of the kind and name, also one that is
	// created again.
	UID types.UID
}

// matches reports whether the description matches a pod.
func (o *Owner) matches(pod *v1.Pod) bool {
	named := o.Named != types.NamespacedName{}
	if o.Pod == "" && !named && o.Controller == nil && o.Selector == nil && o.Gang == nil {
		return false
	}
	if named && (o.Named.Namespace != pod.Namespace || o.Named.Name != pod.Name) {
		return false
	}
	if o.Pod != "" && o.Pod != pod.UID || o.Controller != nil && !o.Controller.made(pod) {
		return false
	}
	if o.Selector != nil && (pod.Namespace != o.Namespace || !o.Selector.Matches(labels.Set(pod.Labels))) {
		return false
	}
	if o.Gang != nil {
		key, _, ok := gangspec.KeyOf(pod)
		return ok && key == *o.Gang
	}
	return true
}

// made reports whether the controller is that of a pod.
func (c *Controller) made(pod *v1.Pod) bool {
	ref := metav1.GetControllerOfNoCopy(pod)
	if ref == nil || pod.Namespace != c.Namespace || ref.Kind != c.Kind || ref.Name != c.Name || c.UID != "" &&
		ref.UID != c.UID {
		return false
	}
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && gv.Group == c.Group
}

// Index is entries by their owners. To find those of a pod takes a few look-ups, one for each of its labels, and a
// match for each selector of its namespace that names no label with a value. It is not safe for concurrent use. The
// zero Index is empty.
type Index struct {
	entries map[string][]Owner
	// byKey has the entries by the keys that their owners are found by.
	byKey map[any]map[string]int
}

// The keys that owners are found by, the narrowest first.
type (
	byPod        types.UID
	byName       types.NamespacedName
	byController struct{ namespace, kind, name string }
	byGang       gangspec.Key
	byLabel      struct{ namespace, key, value string }
	byNamespace  string
)

// keysOf returns keys of which every pod of an owner has one; none where the owner matches no pod.
func keysOf(o *Owner) []any {
	switch {
	case o.Pod != "":
		return []any{byPod(o.Pod)}
	case o.Named != types.NamespacedName{}:
		return []any{byName(o.Named)}
	case o.Controller != nil:
		return []any{byController{o.Controller.Namespace, o.Controller.Kind, o.Controller.Name}}
	case o.Gang != nil:
		return []any{byGang(*o.Gang)}
	case o.Selector != nil:
		return labelsOf(o)
	}
	return nil
}

// labelsOf returns labels of which every pod that a selector matches has one; if the selector names
// none with a value, the namespace that the pods have in common.
func labelsOf(o *Owner) []any {
	requirements, _ := o.Selector.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			var keys []any
			for _, value := range r.ValuesUnsorted() {
				keys = append(keys, byLabel{o.Namespace, r.Key(), value})
			}
			return keys
		}
	}
	return []any{byNamespace(o.Namespace)}
}

// Set gives an entry these owners, and no others. Without owners the entry is removed.
func (x *Index) Set(entry string, owners ...Owner) {
	if x.entries == nil {
		x.entries, x.byKey = map[string][]Owner{}, map[any]map[string]int{}
	}
	for i := range x.entries[entry] {
		x.count(keysOf(&x.entries[entry][i]), entry, -1)
	}
	delete(x.entries, entry)
	if len(owners) == 0 {
		return
	}
	x.entries[entry] = slices.Clone(owners)
	for i := range owners {
		x.count(keysOf(&owners[i]), entry, 1)
	}
}

func (x *Index) count(keys []any, entry string, by int) {
	for _, key := range keys {
		if x.byKey[key] == nil {
			x.byKey[key] = map[string]int{}
		}
		if x.byKey[key][entry] += by; x.byKey[key][entry] == 0 {
			delete(x.byKey[key], entry)
		}
		if len(x.byKey[key]) == 0 {
			delete(x.byKey, key)
		}
	}
}

// Of returns, in order, the entries with an owner that matches a pod.
func (x *Index) Of(pod *v1.Pod) []string {
	if len(x.entries) == 0 {
		return nil
	}
	var found map[string]bool // mostly none is made
	look := func(key any) {
		for entry := range x.byKey[key] {
			if !found[entry] && slices.ContainsFunc(x.entries[entry], func(o Owner) bool { return o.matches(pod) }) {
				if found == nil {
					found = map[string]bool{}
				}
				found[entry] = true
			}
		}
	}
	look(byPod(pod.UID))
	look(byName{Namespace: pod.Namespace, Name: pod.Name})
	look(byNamespace(pod.Namespace))
	for key, value := range pod.Labels {
		look(byLabel{pod.Namespace, key, value})
	}
	if ref := metav1.GetControllerOfNoCopy(pod); ref != nil {
		look(byController{pod.Namespace, ref.Kind, ref.Name})
	}
	if key, _, ok := gangspec.KeyOf(pod); ok {
		look(byGang(key))
	}
	return slices.Sorted(maps.Keys(found))
}
