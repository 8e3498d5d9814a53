package podclass

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/hold"
)

// Hash is a hash of fields, each ended by a zero byte.
type Hash struct{ h *maphash.Hash }

// NewHash returns a hash without fields. Hashes of one seed can be compared.
func NewHash(seed maphash.Seed) Hash {
	h := &maphash.Hash{}
	h.SetSeed(seed)
	return Hash{h}
}

// Sum returns the hash of all fields.
func (w Hash) Sum() uint64 { return w.h.Sum64() }

// Text writes values.
func (w Hash) Text(values ...string) {
	for _, value := range values {
		w.h.WriteString(value)
		w.h.WriteByte(0)
	}
}

// Number writes a number.
func (w Hash) Number(n int64) { maphash.WriteComparable(w.h, n) }

func (w Hash) sorted(m map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		w.Text(key, m[key])
	}
	w.Text("")
}

// Holders writes holders.
func (w Hash) Holders(list []hold.Holder) {
	for _, holder := range list {
		w.Text(holder.Profile, holder.Group)
	}
	w.Text("")
}

// Resources writes amounts, by name.
func (w Hash) Resources(list v1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		w.Text(string(name))
		w.Number(quantity.MilliValue())
	}
	w.Text("")
}

func (w Hash) tolerations(list []v1.Toleration) {
	w.Number(int64(len(list)))
	for i := range list {
		t := &list[i]
		w.Text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	}
}

func (w Hash) containers(list []v1.Container, images bool) {
	for i := range list {
		c := &list[i]
		if images {
			w.Text(c.Image)
		}
		w.Resources(c.Resources.Requests)
		w.Resources(c.Resources.Limits)
		if c.RestartPolicy != nil {
			w.Text(string(*c.RestartPolicy))
		}
		// Some fields ask for nodes that declare a feature.
		if len(c.RestartPolicyRules) > 0 {
			w.Object(c.RestartPolicyRules)
		}
		for j := range c.VolumeMounts {
			if options := c.VolumeMounts[j].BindMountOptions; len(options) > 0 {
				w.Object(options)
			}
		}
		for j := range c.Ports {
			if p := &c.Ports[j]; p.HostPort > 0 {
				w.Text(p.HostIP, string(p.Protocol))
				w.Number(int64(p.HostPort))
			}
		}
		w.Text("")
	}
	w.Text("")
}

// Object writes a value as JSON.
func (w Hash) Object(value any) {
	data, err := json.Marshal(value)
	if err != nil {
		// API types always marshal; if one does not, the pod is of its own class.
		data = []byte(fmt.Sprintf("%p", value))
	}
	w.h.Write(data)
	w.h.WriteByte(0)
}

// Placing writes what of a pod selects nodes, beside its requests, its claims and its terms about other pods.
func (w Hash) Placing(pod *v1.Pod) {
	spec := &pod.Spec
	w.Text(pod.Namespace, spec.SchedulerName, pod.Labels[v1alpha1.QueueLabel], spec.NodeName)
	w.sorted(spec.NodeSelector)
	w.tolerations(spec.Tolerations)
	if spec.Affinity != nil && spec.Affinity.NodeAffinity != nil {
		w.Object(spec.Affinity.NodeAffinity)
	}
	for i := range spec.Volumes {
		if source := &spec.Volumes[i].VolumeSource; isReadByScheduler(source) {
			w.Object(source)
		}
	}
	if spec.OS != nil {
		w.Text(string(spec.OS.Name))
	}
	if spec.RuntimeClassName != nil {
		w.Text(*spec.RuntimeClassName)
	}
}

// isReadByScheduler reports whether the scheduler reads a volume that is no claim: it forbids using some twice, counts
// those that are translated to CSI, and looks for images.
func isReadByScheduler(v *v1.VolumeSource) bool {
	return v.GCEPersistentDisk != nil || v.AWSElasticBlockStore != nil || v.ISCSI != nil || v.RBD != nil ||
		v.AzureDisk != nil || v.AzureFile != nil || v.Cinder != nil || v.VsphereVolume != nil || v.PortworxVolume != nil ||
		v.Image != nil
}
