// Command demo tells on the terminal what Lockstep does, with a real control plane, the scheduler and
// the controller of this checkout, and kubectl: make demo. What it says it has seen; a step that does
// not come out as told ends it with exit code 1.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockstep-sh/lockstep/test/localcluster"
)

const (
	// clusterName is the cluster of the demo. A demo that runs takes the place of the last one.
	clusterName = "demo"
	// startTimeout bounds the start of the control plane, endTimeout its end.
	startTimeout = 2 * time.Minute
	endTimeout   = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	p := newPrinter(os.Stdout)
	err := run(ctx, p)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
		return
	case interrupted:
		p.say("Interrupted. " + takeDown())
	default:
		p.failure(err)
	}
	os.Exit(1)
}

// run starts a cluster and tells the story in it.
func run(ctx context.Context, p *printer) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	if err := os.Chdir(root); err != nil { // paths on the terminal are relative to the repository
		return fmt.Errorf("going to the repository: %w", err)
	}
	begin := time.Now()
	p.title("Lockstep: gangs of pods start together, or wait without holding anything")
	p.say(`A real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager) with 16 fake nodes:
		4 racks, r0 to r3, of 4 nodes with 8 GPUs each. KWOK plays the kubelets; all else is real.`)
	s, err := setUp(ctx)
	if err != nil {
		return err
	}
	defer s.stopWatching()
	p.say(fmt.Sprintf("Kubernetes %s and lockstep-scheduler are up after %.1f s. To look for yourself, in another terminal, here:",
		s.version, time.Since(begin).Seconds()))
	p.code("export KUBECONFIG="+s.kubeconfig(), "export PATH=$PWD/"+binDir+":$PATH   # kubectl")
	if err := s.tell(ctx, p); err != nil {
		return fmt.Errorf("%w\n%s", err, s.whereToLook())
	}
	p.ending(time.Since(begin))
	return nil
}

// takeDown removes what an interrupted demo started, and says so.
func takeDown() string {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	if err := localcluster.Down(ctx, clusterName); err != nil {
		return fmt.Sprintf("The cluster could not be taken down: %v", err)
	}
	return "The cluster is down again."
}

// up starts the control plane, in place of the one that an earlier demo left.
func up(ctx context.Context) (*localcluster.Cluster, error) {
	// Not part of the time that the start may take.
	if err := localcluster.Build(ctx, os.Stderr); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	o := localcluster.Options{
		Name: clusterName, Keep: true, Nodes: racks(),
		Manifests: []string{filepath.Join("manifests", "crds")},
	}
	c, err := localcluster.Up(ctx, o)
	if !errors.Is(err, localcluster.ErrExists) {
		return c, err
	}
	if err := localcluster.Down(ctx, clusterName); err != nil {
		return nil, err
	}
	return localcluster.Up(ctx, o)
}
