package descheduler

import (
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/descheduler/pkg/api"
)

// DefragmentationMode is what a round of Defragmentation is for.
type DefragmentationMode string

const (
	// DemandMode makes room for whoever waits and does not fit.
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
	// ProtectionThresholds are percents of what a node has to give: no pod is moved to a node so that it is used by
	// more. Default: 100 of the resource.
	ProtectionThresholds api.ResourceThresholds `json:"protectionThresholds,omitempty"`
	// DefragmentThresholds are percents: in mode Threshold pods are moved to nodes that are used by so much, and to no
	// others. Default: 0 of the resource.
	DefragmentThresholds api.ResourceThresholds `json:"defragmentThresholds,omitempty"`
	// LowThresholds are percents: in mode Threshold units that are used by less are emptied. Default: 20 of the
	// resource.
	LowThresholds api.ResourceThresholds `json:"lowThresholds,omitempty"`
	// NumberOfNodes is how many units have to be below LowThresholds for anything to be moved in mode Threshold.
	// Default: 0.
	NumberOfNodes int `json:"numberOfNodes,omitempty"`
	// EvictableNamespaces are those of pods that may be moved: include or exclude. Default: all but kube-system.
	EvictableNamespaces *api.Namespaces `json:"evictableNamespaces,omitempty"`
	// CoolDownTime is how long nobody is moved from or to a node again to or from which a pod was moved: a duration, or
	// a number of seconds. Default: 10m.
	CoolDownTime *Duration `json:"coolDownTime,omitempty"`
	// MinRuntime is how long nothing of a gang, and no pod in none, is moved after it began to run: a duration, or a
	// number of seconds. Default: 0.
	MinRuntime *Duration `json:"minRuntime,omitempty"`

	// Mode is what a round is for. Default: Demand.
	Mode DefragmentationMode `json:"mode,omitempty"`
	// Unit is what is emptied in mode Threshold: a node label key. Default: kubernetes.io/hostname, a node.
	Unit string `json:"unit,omitempty"`
	// DryRun has plans wait for approval. Default: false.
	DryRun bool `json:"dryRun,omitempty"`
	// MaxMoves, MaxGangs and MaxEvictions are the budget of a plan: pods that are moved, gangs of which pods are moved,
	// and pods between their eviction and their successor at a time. Defaults: 32, 4, 4.
	MaxMoves     *int32 `json:"maxMoves,omitempty"`
	MaxGangs     *int32 `json:"maxGangs,omitempty"`
	MaxEvictions *int32 `json:"maxEvictions,omitempty"`
	// MinGain is what a plan has to gain for it to be made without being asked for: of ResourceType, what those ask for
	// who get room (or what the emptied units have), as a percentage of what those ask for who start anew. 0 is anything.
	// From 0 to 10000. Default: 100.
	MinGain *int32 `json:"minGain,omitempty"`
	// HoldTime is how long what was freed is held for whom it was freed. Default: 10m.
	HoldTime *Duration `json:"holdTime,omitempty"`
	// WaitedFor is how long a gang or a pod has to have waited. Default: 10s.
	WaitedFor *Duration `json:"waitedFor,omitempty"`
	// EvictBarePods has pods without a controller be moved, too: somebody makes them again under their names.
	// Default: false.
	EvictBarePods bool `json:"evictBarePods,omitempty"`
	// ControllerKinds are controllers of pods, beside ReplicaSet, StatefulSet, ReplicationController and Job, that make a
	// pod again which was evicted, and do not take it for a failure: as Kind.group, RayCluster.ray.io. Pods of others are
	// not moved. Default: none.
	ControllerKinds []string `json:"controllerKinds,omitempty"`
	// SchedulerConfig is the file that the scheduler has as --config. Default: its embedded configuration.
	SchedulerConfig string `json:"schedulerConfig,omitempty"`
}

// Duration is a time.Duration that is written like 90s or 10m, or as a number of seconds.
type Duration struct{ time.Duration }

// UnmarshalJSON reads either form.
func (d *Duration) UnmarshalJSON(data []byte) error {
	var seconds int64
	if json.Unmarshal(data, &seconds) == nil {
		d.Duration = time.Duration(seconds) * time.Second
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("reading a duration: want one like 90s or 10m, or a number of seconds, got %s", data)
	}
	parsed, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("reading a duration: want one like 90s or 10m, or a number of seconds: %w", err)
	}
	d.Duration = parsed
	return nil
}

// MarshalJSON writes it as text.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }
