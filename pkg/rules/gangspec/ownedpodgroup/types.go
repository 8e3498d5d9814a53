package ownedpodgroup

import (
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
)

// Kinds are the kinds of owners, as the API server serves them.
var Kinds = map[gangspec.OwnerKind]schema.GroupVersionKind{
	gangspec.OwnerJob:             batchv1.SchemeGroupVersion.WithKind("Job"),
	gangspec.OwnerJobSet:          {Group: "jobset.x-k8s.io", Version: "v1alpha2", Kind: "JobSet"},
	gangspec.OwnerLeaderWorkerSet: {Group: "leaderworkerset.x-k8s.io", Version: "v1", Kind: "LeaderWorkerSet"},
}

// jobSet is what is read of a JobSet.
type jobSet struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     JobSetSpec        `json:"spec"`
}

// JobSetSpec is what is read of the spec of a JobSet.
type JobSetSpec struct {
	Suspend        bool            `json:"suspend"`
	ReplicatedJobs []replicatedJob `json:"replicatedJobs"`
	StartupPolicy  struct {
		StartupPolicyOrder string `json:"startupPolicyOrder"`
	} `json:"startupPolicy"`
}

// replicatedJob is one of the kinds of Jobs of a JobSet.
type replicatedJob struct {
	Name      string                  `json:"name"`
	Replicas  *int32                  `json:"replicas"`
	Template  batchv1.JobTemplateSpec `json:"template"`
	DependsOn []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"dependsOn"`
}

// Names of JobSet.
const (
	orderInOrder      = "InOrder"
	dependsOnComplete = "Complete"
	// jobSetExclusive, on a JobSet or on the template of a Job, puts one Job in each topology domain: all
	// pods but the first of a Job are made when that one is scheduled; not so with jobSetNodeSelector.
	jobSetExclusive    = "alpha.jobset.sigs.k8s.io/exclusive-topology"
	jobSetNodeSelector = "alpha.jobset.sigs.k8s.io/node-selector"
)

// leaderWorkerSet is what is read of a LeaderWorkerSet.
type leaderWorkerSet struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Replicas             *int32 `json:"replicas"`
		StartupPolicy        string `json:"startupPolicy"`
		LeaderWorkerTemplate struct {
			Size           *int32              `json:"size"`
			LeaderTemplate *v1.PodTemplateSpec `json:"leaderTemplate"`
			WorkerTemplate v1.PodTemplateSpec  `json:"workerTemplate"`
		} `json:"leaderWorkerTemplate"`
	} `json:"spec"`
}

// Names of LeaderWorkerSet.
const (
	startupLeaderReady = "LeaderReady"
	// groupSize is an annotation of a leader: how many pods its group has. While an update rolls
	// out, groups have different sizes.
	groupSize = "leaderworkerset.sigs.k8s.io/size"
	// groupExclusive puts one group in each topology domain: workers are made when their leader is scheduled.
	groupExclusive = "leaderworkerset.sigs.k8s.io/exclusive-topology"
	leaderIndex    = "0"
)
