#!/usr/bin/env bash
# Tells what Defragmentation and the descheduler's HighNodeUtilization each make of the same cluster: 64 nodes with 8 GPUs
# in 8 racks, 140 pods that ask for 1, 2, 4 or 8 GPUs (60, 20, 15 and 5 of 100: most jobs of training clusters are small, as
# in Jeon et al., "Analysis of Large-Scale Multi-Tenant GPU Clusters", USENIX ATC 2019), spread as kube-scheduler does, and
# three gangs of 8 x 8 GPUs, each in one rack, that wait.
#
# hack/fragments.sh ours|high [seconds]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

which=${1:?ours or high}
seconds=${2:-120}
dir=.local/fragments-$which
export KUBECONFIG=$PWD/.local/clusters/fragments/kubeconfig.yaml PATH=$PWD/.local/bin:$PATH
make build control-plane >/dev/null
go run ./hack/cluster up --name fragments --nodes 64 --zones 1 --racks 8 --gpus 8 >/dev/null
rm -rf "$dir" && mkdir -p "$dir"
pids=()
finish() {
  kill "${pids[@]}" 2>/dev/null || true
  wait "${pids[@]}" 2>/dev/null || true
  go run ./hack/cluster down --name fragments >/dev/null
}
trap finish EXIT

# HighNodeUtilization wants a scheduler that fills nodes; where pods run at first is the same for both.
cat >"$dir/fill.yaml" <<EOF
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
profiles:
- schedulerName: lockstep-scheduler
  plugins: {multiPoint: {enabled: [{name: Gang}, {name: GangPreemption}, {name: Reservation}]}}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 1}]}}
EOF
scheduler() {
  bin/lockstep-scheduler --kubeconfig "$KUBECONFIG" --secure-port 0 "$@" >>"$dir/scheduler.log" 2>&1 &
  pids+=($!)
}
scheduler --leader-elect=false
first=$!
bin/lockstep-controller --kubeconfig "$KUBECONFIG" --leader-elect=false --metrics-bind-address 0 --health-probe-bind-address 0 >"$dir/controller.log" 2>&1 &
pids+=($!)

for shape in 8:7 4:21 2:28 1:84; do
  kubectl apply -f - >/dev/null <<EOF
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: gpus-${shape%:*}}
spec:
  replicas: ${shape#*:}
  podManagementPolicy: Parallel
  serviceName: none
  selector: {matchLabels: {app: gpus-${shape%:*}}}
  template:
    metadata: {labels: {app: gpus-${shape%:*}}}
    spec:
      schedulerName: lockstep-scheduler
      containers: [{name: main, image: none, resources: {requests: {cpu: 1}, limits: {nvidia.com/gpu: ${shape%:*}}}}]
EOF
  kubectl rollout status "statefulset/gpus-${shape%:*}" --timeout 60s >/dev/null
done
if [[ $which == high ]]; then
  kill "$first" && wait "$first" || true
  scheduler --config "$dir/fill.yaml"
fi
for n in 1 2 3; do
  kubectl apply -f - >/dev/null <<EOF
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: gang-$n, annotations: {scheduling.lockstep.dev/required-topology: topology.lockstep.dev/rack}}
spec: {minMember: 8}
---
apiVersion: batch/v1
kind: Job
metadata: {name: gang-$n}
spec:
  completionMode: Indexed
  completions: 8
  parallelism: 8
  template:
    metadata: {labels: {scheduling.x-k8s.io/pod-group: gang-$n}}
    spec:
      schedulerName: lockstep-scheduler
      restartPolicy: Never
      containers: [{name: main, image: none, command: [sleep, infinity], resources: {limits: {nvidia.com/gpu: 8}}}]
EOF
done
sleep 5
running() { kubectl get podgroups -o jsonpath='{range .items[?(@.status.running==8)]}{.metadata.name}{"\n"}{end}' | grep -c . || true; }
echo "before: $(running) of 3 gangs run"
kubectl get statefulsets,pods -o wide >"$dir/before.txt"

args='{waitedFor: 1s, coolDownTime: 1s, maxEvictions: 8, maxMoves: 64}'
plugin=Defragmentation
if [[ $which == high ]]; then
  args='{thresholds: {nvidia.com/gpu: 60}}'
  plugin=HighNodeUtilization
fi
cat >"$dir/policy.yaml" <<EOF
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: compared
  pluginConfig:
  - {name: $plugin, args: $args}
  - {name: DefaultEvictor, args: {evictLocalStoragePods: true, nodeFit: true}}
  plugins: {balance: {enabled: [$plugin]}}
EOF
bin/lockstep-descheduler --kubeconfig "$KUBECONFIG" --policy-config-file "$dir/policy.yaml" --secure-port 0 --descheduling-interval 5s -v 1 >"$dir/descheduler.log" 2>&1 &
pids+=($!)
for ((at = 0; at < seconds; at += 10)); do
  sleep 10
  [[ $(running) == 3 ]] && break
done
if [[ $which == high ]]; then
  evicted=$(grep -c '"Evicted pod"' "$dir/descheduler.log" || true)
else
  evicted=$(kubectl get podmigrations -A -o jsonpath='{range .items[*]}{.status.conditions[?(@.type=="Evicted")].status}{"\n"}{end}' | grep -c True || true)
fi
pending=$(kubectl get pods -l app --field-selector status.phase=Pending -o name | grep -c . || true)
echo "after $((at + 10)) s of $plugin: $(running) of 3 gangs run; $evicted pods were evicted; $pending of them wait for a node"
