package v1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// SetDefaults_GangArgs fills what the user left out.
//
//nolint:revive // the generator fixes the name
func SetDefaults_GangArgs(args *GangArgs) {
	setDuration(&args.DefaultWaitTime, 10*time.Minute)
	setDuration(&args.InitialBackoff, 250*time.Millisecond)
	setDuration(&args.MaxBackoff, time.Second)
	if args.ExplanationQPS == nil {
		args.ExplanationQPS = ptr.To[int32](10)
	}
	if args.FillDomains == nil {
		args.FillDomains = ptr.To(true)
	}
}

// SetDefaults_ReservationArgs fills what the user left out.
//
//nolint:revive // the generator fixes the name
func SetDefaults_ReservationArgs(args *ReservationArgs) {
	if args.Preempt == nil {
		args.Preempt = ptr.To(false)
	}
	if args.Preemptable == nil {
		args.Preemptable = ptr.To(false)
	}
}

// SetDefaults_BoundedBinderArgs fills what the user left out.
//
//nolint:revive // the generator fixes the name
func SetDefaults_BoundedBinderArgs(args *BoundedBinderArgs) {
	if args.MaxInFlight == nil {
		args.MaxInFlight = ptr.To(config.DefaultMaxInFlight)
	}
}

// SetDefaults_GangPreemptionArgs fills what the user left out.
//
//nolint:revive // the generator fixes the name
func SetDefaults_GangPreemptionArgs(args *GangPreemptionArgs) {
	setNumber(&args.MinCandidateNodesPercentage, 100)
	setNumber(&args.MinCandidateNodesAbsolute, 100)
	setNumber(&args.MaxCandidateNodesAbsolute, 0)
	setNumber(&args.Workers, 16)
	setNumber(&args.MaxDomains, 5)
	setNumber(&args.ROIThresholdPercent, 5)
	if args.EvictBrokenGangs == nil {
		args.EvictBrokenGangs = ptr.To(true)
	}
	setDuration(&args.BrokenGrace, time.Minute)
	setDuration(&args.MinRuntime, 0)
	setDuration(&args.EvictionCooldown, 0)
	setDuration(&args.SearchTimeout, time.Second)
	if args.EvictBy == "" {
		args.EvictBy = v1alpha1.EvictByDelete
	}
}

// SetDefaults_FairShareArgs fills what the user left out.
//
//nolint:revive // the generator fixes the name
func SetDefaults_FairShareArgs(args *FairShareArgs) {
	setNumber(&args.Window, 256)
	setNumber(&args.MaxBypass, 100)
	setDuration(&args.BypassHold, time.Minute)
	setDuration(&args.EvictedHold, config.DefaultEvictedHold)
	setNumber(&args.ExplanationQPS, 10)
	if args.Tiers == nil {
		args.Tiers = []PolicyTier{{Policies: []Policy{
			{Name: "priority"}, {Name: "gang"}, {Name: "conformance"}, {Name: "proportion"}, {Name: "capacity"},
			{Name: "drf", Answers: []string{"JobOrder"}},
		}}}
	}
}

func setNumber(field **int32, value int32) {
	if *field == nil {
		*field = ptr.To(value)
	}
}

func setDuration(field **metav1.Duration, value time.Duration) {
	if *field == nil {
		*field = &metav1.Duration{Duration: value}
	}
}
