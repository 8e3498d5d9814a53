package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// standbySuffix is the end of the name of the second replica's file, after that of the first: a
// scheduler's file name is its name towards the API server, and so the two can be distinguished.
const standbySuffix = "-2"

// lease is the lease of two schedulers: the one that their role lets them have.
const lease = "lockstep-scheduler"

// electArgs returns flags that make replicas elect a leader quickly.
func electArgs() []string {
	return []string{
		"--leader-elect=true", "--leader-elect-resource-name=" + lease,
		"--leader-elect-lease-duration=8s", "--leader-elect-renew-deadline=6s", "--leader-elect-retry-period=1s",
	}
}

// prepareStandby makes the second replica.
func (r *run) prepareStandby(ctx context.Context) error {
	// The lease of an earlier scenario would have to run out first.
	leases := r.site.cluster.Clientset().CoordinationV1().Leases(localcluster.AccountsNamespace)
	if err := leases.Delete(ctx, lease, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the lease of schedulers: %w", err)
	}
	r.scheduler.args = r.elected(r.scheduler.args)
	file := filepath.Join(r.dir, filepath.Base(r.scheduler.binary)+standbySuffix)
	if err := os.Symlink(r.scheduler.binary, file); err != nil {
		return fmt.Errorf("making the second replica: %w", err)
	}
	var err error
	if r.standby, err = r.newDaemon(schedulerAccount); err != nil {
		return err
	}
	if err := r.standby.configure(&r.scenario.Scheduler, r.stock, r.Fleet.root, file); err != nil {
		return err
	}
	r.standby.name, r.standby.binary = "standby", file
	r.standby.args = r.elected(r.standby.args)
	return nil
}

// elected returns arguments with those of an election. The scenario's own arguments come last, and win.
func (r *run) elected(args []string) []string {
	return slices.Concat(args, electArgs(), r.scenario.Scheduler.Args)
}

// startSchedulers starts the scheduler; where there is a second replica, the first leads before it starts.
func (r *run) startSchedulers(ctx context.Context) error {
	if err := r.scheduler.start(ctx); err != nil || r.standby == nil {
		return err
	}
	if err := r.scheduler.waitLeading(ctx); err != nil {
		return err
	}
	return r.standby.start(ctx)
}

// handedOver waits until the second replica leads.
func (r *run) handedOver(ctx context.Context) error {
	if r.standby == nil {
		return errors.New("waiting for the second replica to lead: there is none; say scheduler: {standby: true}")
	}
	if err := r.fired(ctx, victimScheduler); err != nil {
		return err
	}
	r.disarm(victimScheduler)
	ctx, cancel := context.WithTimeout(ctx, defaultWithin)
	defer cancel()
	if err := r.standby.waitLeading(ctx); err != nil {
		return err
	}
	r.rec.setDown(victimScheduler, false)
	return nil
}

// freeze stops the process as kill -STOP does; it is no more than asleep.
func (d *daemon) freeze(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return fmt.Errorf("freezing the %s: it does not run", d.name)
	}
	d.rec.setDown(d.name, true)
	return d.process.Signal(syscall.SIGSTOP)
}

// thaw lets it go on. It may end by itself then.
func (d *daemon) thaw() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.process == nil {
		return fmt.Errorf("thawing the %s: it does not run", d.name)
	}
	d.thawed = d.process
	return d.process.Signal(syscall.SIGCONT)
}

// waitEnded returns when the process that was thawed has ended by itself, with an error.
func (d *daemon) waitEnded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, defaultWithin)
	defer cancel()
	d.mu.Lock()
	thawed := d.thawed
	d.mu.Unlock()
	if thawed == nil {
		return fmt.Errorf("waiting for the %s to end: it was not thawed", d.name)
	}
	select {
	case <-thawed.Done():
	case <-ctx.Done():
		return fmt.Errorf("waiting for the %s to end: it goes on", d.name)
	}
	if thawed.Err() == nil {
		return fmt.Errorf("waiting for the %s to end: it ended with exit code 0, as if all were well", d.name)
	}
	return nil
}

// logPoll is how often a log is looked at.
const logPoll = 25 * time.Millisecond

// waitLeading returns when it has become the leader.
func (d *daemon) waitLeading(ctx context.Context) error {
	for {
		log, err := os.ReadFile(d.log())
		if bytes.Contains(log, []byte("Successfully acquired lease")) {
			return nil
		}
		if pauseErr := await.Pause(ctx, logPoll); pauseErr != nil {
			return errors.Join(fmt.Errorf("waiting for the %s to lead: %w", d.name, pauseErr), err)
		}
	}
}
