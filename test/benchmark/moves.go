package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// moves measures the cost of a descheduler that seeks moves for a gang: pods in no gang, on nodes half used by
// services, without a descheduler, and beside one that makes a round every ten seconds, which is six times as often as
// in the manifests. It writes no plans, so that both races are for the same room.
type moves struct {
	nodes, pods int
}

func (b moves) name() string { return fmt.Sprintf("Moves/nodes=%d/pods=%d", b.nodes, b.pods) }

const (
	servicesNamespace = "services"
	// onNode is how many pods of services are on each node, of a GPU each.
	onNode = gpusOnNode / 2
	// roundEvery is how often the descheduler looks.
	roundEvery = "10s"
)

func (b moves) run(ctx context.Context, f *fixture, r *report) error {
	if err := f.withReservations(ctx, b.nodes); err != nil {
		return err
	}
	if err := b.fill(ctx, f); err != nil {
		return err
	}
	t := r.table(b.name(), []goal{{unit: "pods/s", ratio: true, bound: 0.9, column: 1}}, "descheduler=none", "descheduler=beside")
	w := workload{scheduler: ours.schedulerName, prefix: "train", gangs: b.pods, size: 1}
	for round := range f.rounds {
		label := func(column int) string { return fmt.Sprintf("%s/%s/round=%d", b.name(), t.columns[column], round+1) }
		if err := f.raceOnce(ctx, r, t, 0, ours, label(0), w); err != nil {
			return err
		}
		stop, err := b.descheduler(ctx, f)
		if err != nil {
			return err
		}
		if err := errors.Join(f.raceOnce(ctx, r, t, 1, ours, label(1), w), stop()); err != nil {
			return err
		}
	}
	return f.client.CoreV1().Namespaces().Delete(ctx, servicesNamespace, metav1.DeleteOptions{})
}

// fill makes the services, on their nodes, and a gang for which moves have to be sought: each of its members asks for a
// whole node.
func (b moves) fill(ctx context.Context, f *fixture) error {
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: servicesNamespace}}
	if _, err := f.client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating a namespace: %w", err)
	}
	nodes, err := f.nodeNames(ctx)
	if err != nil {
		return err
	}
	services := workload{scheduler: ours.schedulerName, prefix: "service", gangs: b.nodes, size: onNode}
	waiting := workload{scheduler: ours.schedulerName, prefix: "waiting", gangs: 1, size: 8, min: 8, gpus: gpusOnNode}
	err = each(ctx, services.pods(), func(ctx context.Context, i int) error {
		pod := services.at(i)
		pod.Namespace, pod.Spec.NodeName = servicesNamespace, nodes[i/onNode]
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: gangOf(pod.Name), UID: "00000000-0000-0000-0000-000000000001", Controller: new(true),
		}}
		return f.createWith(ctx, pod, v1.PodStatus{Phase: v1.PodRunning})
	})
	if err != nil {
		return err
	}
	return each(ctx, waiting.pods(), func(ctx context.Context, i int) error {
		pod := waiting.at(i)
		pod.Namespace = servicesNamespace
		return f.createWith(ctx, pod, v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{{
			Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}})
	})
}

// policy makes the descheduler seek moves for every gang that waits, at any price.
const policy = `apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: lockstep
  pluginConfig:
  - name: Defragmentation
    args: {waitedFor: 1s, minGain: 0, maxMoves: 64}
  plugins: {balance: {enabled: [Defragmentation]}}
`

// sought is what the descheduler logs of a gang when it has sought moves; aRound bounds the first round.
var sought = [][]byte{[]byte("no plan is written"), []byte("No moves lead to room")}

const aRound = time.Minute

// descheduler starts one, and returns when it has made a round.
func (b moves) descheduler(ctx context.Context, f *fixture) (stop func() error, err error) {
	file := filepath.Join(f.cluster.Dir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		return nil, fmt.Errorf("configuring a descheduler: %w", err)
	}
	process, err := f.cluster.Start("descheduler", f.descheduler, []string{
		"--kubeconfig=" + f.cluster.Kubeconfig(), "--policy-config-file=" + file, "--descheduling-interval=" + roundEvery, "--secure-port=0", "--dry-run", "--v=1",
	}, "")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, aRound)
	defer cancel()
	for {
		log, err := os.ReadFile(process.LogFile)
		if err == nil && slices.ContainsFunc(sought, func(line []byte) bool { return bytes.Contains(log, line) }) {
			return process.Kill, nil
		}
		if err := errors.Join(err, await.Pause(ctx, settlePause)); err != nil {
			return nil, errors.Join(fmt.Errorf("waiting for a round of the descheduler: %w", err), process.Kill())
		}
	}
}
