package lease

import (
	"context"
	"time"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock returns the lock that leader election is to use instead of inner: it notes when
// the lease was renewed, and which process holds it.
func (l *Lease) Lock(inner resourcelock.Interface) resourcelock.Interface {
	return &lock{Interface: inner, lease: l}
}

// lock is a resource lock that keeps the Lease up to date.
type lock struct {
	resourcelock.Interface
	lease *Lease
}

// Create creates the record, in the name of this process.
func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Create)
}

// Update renews the record, or gives it back: then it names no holder.
func (l *lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		if err := l.lease.leaving(ctx); err != nil {
			return err
		}
		return l.Interface.Update(ctx, record)
	}
	return l.renew(ctx, record, l.Interface.Update)
}

// Get reads the record.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && record.HolderIdentity != "" && record.HolderIdentity != l.Identity() {
		l.lease.seen(record.HolderIdentity)
	}
	return record, raw, err
}

// renew writes the record. Other processes go by the length in the record, in whole
// seconds.
func (l *lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord,
	write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	sent := l.lease.now()
	if err := write(ctx, record); err != nil {
		return err
	}
	l.lease.renewed(sent, time.Duration(record.LeaseDurationSeconds)*time.Second)
	return nil
}
