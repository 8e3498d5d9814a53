package evictions

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// recordRefusal records that the eviction of a victim was refused; whether by a dry run, or unexpectedly.
func (u *ActivePreemptions) recordRefusal(victim types.UID, now time.Time, dryRun bool) {
	u.mu.Lock()
	if u.refused[victim] = now; !dryRun {
		u.unexpected = now
	}
	u.mu.Unlock()
	u.ReleaseVictims(nil, victim)
}

// cautious reports whether an unpredicted refusal happened within cautiousFor.
func (u *ActivePreemptions) cautious(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return !u.unexpected.IsZero() && now.Sub(u.unexpected) < cautiousFor
}

// Refusals lists the pods whose eviction was refused recently.
func (u *ActivePreemptions) Refusals(now time.Time) map[types.UID]bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := map[types.UID]bool{}
	for pod, at := range u.refused {
		if now.Sub(at) > refusedFor {
			delete(u.refused, pod)
		} else {
			list[pod] = true
		}
	}
	return list
}

// refuses reports whether the API server would return the same error again; other errors are temporary.
func refuses(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.IsMethodNotSupported(err) || apierrors.IsUnauthorized(err)
}
