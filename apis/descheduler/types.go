package descheduler

import (
	"cmp"
	"encoding/json"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/descheduler/pkg/api"
)

// DefragmentationMode is what a round of Defragmentation is for.
type DefragmentationMode string

const (
	// DemandMode makes room for gangs and pods that wait and do not fit.
	DemandMode DefragmentationMode = "Demand"
	// ThresholdMode empties units that are used little.
	ThresholdMode DefragmentationMode = "Threshold"
)

// DefragmentationArgs are the arguments of the plugin Defragmentation.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
type DefragmentationArgs struct {
	metav1.TypeMeta `json:",inline"`

	// ResourceType is the resource that lies in fragments. Default: nvidia.com/gpu.
	ResourceType v1.ResourceName `json:"resourceType,omitempty"`
	// ProtectionThresholds are percents of what a node has to give: no pod is moved to a node that would then be used
	// to more than that. Default: 100 of the resource.
	ProtectionThresholds api.ResourceThresholds `json:"protectionThresholds,omitempty"`
	// DefragmentThresholds are percents: in mode Threshold pods are moved to nodes that are used to at least that much,
	// and to no others. Default: 0 of the resource.
	DefragmentThresholds api.ResourceThresholds `json:"defragmentThresholds,omitempty"`
	// LowThresholds are percents: in mode Threshold units that are used to less than that are emptied. Default: 20 of
	// the resource.
	LowThresholds api.ResourceThresholds `json:"lowThresholds,omitempty"`
	// NumberOfNodes is how many units have to be below LowThresholds for anything to be moved in mode Threshold.
	// Default: 0.
	NumberOfNodes int `json:"numberOfNodes,omitempty"`
	// EvictableNamespaces are the namespaces of pods that may be moved: include or exclude. Default: all but
	// kube-system.
	EvictableNamespaces *api.Namespaces `json:"evictableNamespaces,omitempty"`
	// CoolDownTime is how long no pod is moved from or to a node after a pod was moved to or from it: a duration, or a
	// number of seconds. Default: 10m.
	CoolDownTime *Duration `json:"coolDownTime,omitempty"`
	// MinRuntime is how long no pod of a gang is moved after the gang began to run, nor a pod in no gang after it
	// began: a duration, or a number of seconds. Default: 0.
	MinRuntime *Duration `json:"minRuntime,omitempty"`

	// Mode is what a round is for. Default: Demand.
	Mode DefragmentationMode `json:"mode,omitempty"`
	// Unit is what is emptied in mode Threshold: a node label key. Default: kubernetes.io/hostname, a node.
	Unit string `json:"unit,omitempty"`
	// NeedsApproval: plans wait for approval. Default: false.
	NeedsApproval bool `json:"needsApproval,omitempty"`
	// DryRun is the former name of NeedsApproval.
	DryRun bool `json:"dryRun,omitempty"`
	// MaxMoves, MaxGangs and MaxEvictions are the budget of a plan: pods that are moved, gangs of which pods are moved,
	// and pods between their eviction and their successor at a time. Defaults: 32, 4, 4.
	MaxMoves     *int32 `json:"maxMoves,omitempty"`
	MaxGangs     *int32 `json:"maxGangs,omitempty"`
	MaxEvictions *int32 `json:"maxEvictions,omitempty"`
	// MinGain is what a plan has to gain for it to be made without being asked for: of ResourceType, what the gangs and
	// pods that get room ask for (or what the emptied units have), as a percentage of what the pods that start anew ask
	// for. 0 allows any plan. From 0 to 10000. Default: 100.
	MinGain *int32 `json:"minGain,omitempty"`
	// HoldTime is how long what was freed is held for the gang or pod that it was freed for. Default: 10m.
	HoldTime *Duration `json:"holdTime,omitempty"`
	// WaitedFor is how long a gang or a pod has to have waited. Default: 10s.
	WaitedFor *Duration `json:"waitedFor,omitempty"`
	// EvictBarePods: pods without a controller may be moved, too; they are made again under their names by other means.
	// Default: false.
	EvictBarePods bool `json:"evictBarePods,omitempty"`
	// ControllerKinds are controllers of pods, beside ReplicaSet, StatefulSet, ReplicationController and Job, that make
	// an evicted pod again, and do not take the eviction for a failure: as Kind.group, RayCluster.ray.io. Pods of others
	// are not moved. Default: none.
	ControllerKinds []string `json:"controllerKinds,omitempty"`
	// SchedulerConfig is the file that lockstep-scheduler gets as --config. Default: the one that lockstep-descheduler
	// gets as --scheduler-config, else the embedded one.
	SchedulerConfig string `json:"schedulerConfig,omitempty"`
}

// Duration is a time.Duration that is written like 90s or 10m, or as a number of seconds.
type Duration struct {
	time.Duration
	// Unread is what was written instead of a duration; empty for a duration. Validation reports it with its path, which
	// decoding does not know.
	Unread string `json:"-"`
}

// UnmarshalJSON reads either form.
func (d *Duration) UnmarshalJSON(data []byte) error {
	*d = Duration{}
	var seconds int64
	if json.Unmarshal(data, &seconds) == nil && seconds <= int64(math.MaxInt64/time.Second) &&
		seconds >= int64(math.MinInt64/time.Second) {
		d.Duration = time.Duration(seconds) * time.Second
		return nil
	}
	var text string
	if json.Unmarshal(data, &text) != nil {
		text = string(data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		d.Unread = cmp.Or(text, `""`)
		return nil
	}
	d.Duration = parsed
	return nil
}

// MarshalJSON writes the duration as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
