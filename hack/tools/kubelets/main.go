// Command kubelets runs the kubelets of some nodes in one process: kubelet's own code on a container runtime that does
// nothing, as k8s.io/kubernetes/cmd/kubemark runs one. Each registers its node, admits the pods that are bound to it or
// refuses them, and reports what becomes of them.
//
// Containers end when annotations of their pod say so, which are those of test/harness/localcluster/stages.yaml:
// pod-complete.stage.kwok.x-k8s.io/delay and pod-fail.stage.kwok.x-k8s.io/delay.
//
//	kubelets KUBECONFIG NODES
//
// NODES is a file with a NodeList: names, labels, taints and allocatable of the nodes. What kubelets keep is beside it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	cadvisorapi "github.com/google/cadvisor/lib/model"
	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	criapitest "k8s.io/cri-api/pkg/apis/testing"
	"k8s.io/klog/v2"
	kubelettypes "k8s.io/kubelet/pkg/types"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	cadvisortest "k8s.io/kubernetes/pkg/kubelet/cadvisor/testing"
	"k8s.io/kubernetes/pkg/kubelet/cm"
	"k8s.io/kubernetes/pkg/kubelet/metrics/collectors"
	"k8s.io/kubernetes/pkg/kubemark"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("reading arguments: there are %d, not KUBECONFIG and NODES", len(args))
	}
	config, err := clientcmd.BuildConfigFromFlags("", args[0])
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.ContentType, config.UserAgent = "application/vnd.kubernetes.protobuf", "kubelets"
	data, err := os.ReadFile(args[1])
	if err != nil {
		return fmt.Errorf("reading the nodes: %w", err)
	}
	var nodes v1.NodeList
	if err := yaml.UnmarshalStrict(data, &nodes); err != nil {
		return fmt.Errorf("reading the nodes: %w", err)
	}
	if err := os.Chdir(filepath.Dir(args[1])); err != nil {
		return fmt.Errorf("going to the folder of the nodes: %w", err)
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Lister()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for i := range nodes.Items {
		if err := start(ctx, config, &nodes.Items[i], i, pods); err != nil {
			return fmt.Errorf("starting the kubelet of node %s: %w", nodes.Items[i].Name, err)
		}
	}
	select {}
}

// start starts one kubelet, and returns when it runs.
func start(ctx context.Context, shared *rest.Config, node *v1.Node, number int, pods corelisters.PodLister) error {
	flags, config, err := configure(node, number)
	if err != nil {
		return err
	}
	own := rest.CopyConfig(shared)
	own.QPS, own.Burst = float32(config.KubeAPIQPS), int(config.KubeAPIBurst)
	client, err := clientset.NewForConfig(own)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	heartbeats := rest.CopyConfig(shared)
	heartbeats.QPS, heartbeats.Timeout = -1, config.NodeStatusUpdateFrequency.Duration
	heartbeatClient, err := clientset.NewForConfig(heartbeats)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	containers := newContainers()
	extended := v1.ResourceList{}
	for name, quantity := range node.Status.Allocatable {
		if name != v1.ResourceCPU && name != v1.ResourceMemory && name != v1.ResourcePods {
			extended[name] = quantity
		}
	}
	kubelet := kubemark.NewHollowKubelet(flags, config, client, heartbeatClient,
		machine{&cadvisortest.Fake{NodeName: node.Name}, node},
		criapitest.NewFakeImageService(), containers, cm.NewStubContainerManagerWithDevicePluginResource(extended))
	ctx = klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "node", node.Name))
	if err := kubeletapp.RunKubelet(ctx, &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *config},
		kubelet.KubeletDeps); err != nil {
		return err
	}
	go containers.endThoseThatSaySo(ctx, pods)
	return forgetMetrics()
}

// configure returns the configuration of a kubelet. It differs from the default where that would change the machine,
// serve on ports, or wait for long.
func configure(node *v1.Node, number int) (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	if node.Status.Allocatable.Cpu().MilliValue()%1000 != 0 || len(node.Annotations) > 0 {
		return nil, nil, fmt.Errorf("a kubelet has whole CPUs, not %s, and registers its node without annotations",
			node.Status.Allocatable.Cpu())
	}
	flags := options.NewKubeletFlags()
	config, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, fmt.Errorf("making a configuration: %w", err)
	}
	// The working directory by a short name: kubelet has sockets there, whose paths have at most 107 bytes.
	flags.RootDirectory = filepath.Join("/proc/self/cwd", strconv.Itoa(number))
	flags.HostnameOverride = node.Name
	flags.NodeLabels = node.Labels
	config.PodLogsDir = filepath.Join(flags.RootDirectory, "logs")
	config.RegisterWithTaints = node.Spec.Taints
	config.MaxPods = int32(node.Status.Allocatable.Pods().Value())
	config.EnableServer, config.ReadOnlyPort = false, 0
	config.CgroupsPerQOS, config.MakeIPTablesUtilChains = false, false
	config.EnableControllerAttachDetach, config.LocalStorageCapacityIsolation = false, false
	config.SyncFrequency.Duration = 10 * time.Second
	return flags, config, nil
}

// machine is what cAdvisor says of a machine that has what the node is to have.
type machine struct {
	*cadvisortest.Fake
	node *v1.Node
}

// MachineInfo implements cadvisor.Interface.
func (m machine) MachineInfo(logger klog.Logger) (*cadvisorapi.MachineInfo, error) {
	info, err := m.Fake.MachineInfo(logger)
	if err == nil {
		info.NumCores = int(m.node.Status.Allocatable.Cpu().Value())
		info.MemoryCapacity = uint64(m.node.Status.Allocatable.Memory().Value())
	}
	return info, err
}

// forgetMetrics waits until a kubelet has registered its metrics, and takes away those that only one kubelet in a
// process can register.
func forgetMetrics() error {
	for _, collector := range []metrics.StableCollector{
		collectors.PodCertificateCollectorFor(nil), collectors.NewVolumeStatsCollector(nil),
		collectors.NewLogMetricsCollector(nil),
	} {
		collector.Create(nil, collector)
		for _, registry := range []prometheus.Registerer{legacyregistry.Registerer(), prometheus.DefaultRegisterer} {
			for end := time.Now().Add(time.Minute); !registry.Unregister(collector); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					return fmt.Errorf("waiting for it to register its metrics: it has not within a minute")
				}
			}
		}
	}
	return nil
}

// containers is a runtime whose containers do nothing.
type containers struct{ *criapitest.FakeRuntimeService }

func newContainers() containers {
	c := containers{criapitest.NewFakeRuntimeService()}
	c.FakeStatus = &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}
	return c
}

// The exit codes of containers: of those that are stopped, as SIGTERM has it, and of those that fail.
const stopped, failed = 143, 1

// StopContainer implements the runtime: a container that is stopped has not succeeded. It uses all of a grace period
// that is not the default one, as in stages.yaml.
func (c containers) StopContainer(ctx context.Context, id string, timeout int64) error {
	if timeout != v1.DefaultTerminationGracePeriodSeconds {
		time.Sleep(time.Duration(timeout) * time.Second)
	}
	c.Lock()
	if container := c.Containers[id]; container != nil && container.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
		container.ExitCode = stopped
	}
	c.Unlock()
	return c.FakeRuntimeService.StopContainer(ctx, id, timeout)
}

// endPoll is how often it is seen whether a container ends.
const endPoll = 100 * time.Millisecond

// endThoseThatSaySo ends containers of pods when their annotations say so.
func (c containers) endThoseThatSaySo(ctx context.Context, pods corelisters.PodLister) {
	for ctx.Err() == nil {
		c.Lock()
		for _, container := range c.Containers {
			if container.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
				continue
			}
			pod, err := pods.Pods(container.Labels[kubelettypes.KubernetesPodNamespaceLabel]).Get(container.Labels[kubelettypes.KubernetesPodNameLabel])
			if err != nil || string(pod.UID) != container.Labels[kubelettypes.KubernetesPodUIDLabel] {
				continue
			}
			for key, code := range map[string]int32{"pod-complete.stage.kwok.x-k8s.io/delay": 0,
				"pod-fail.stage.kwok.x-k8s.io/delay": failed} {
				delay, err := time.ParseDuration(pod.Annotations[key])
				if err == nil && time.Since(time.Unix(0, container.StartedAt)) >= delay {
					container.State, container.FinishedAt, container.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), code
				}
			}
		}
		c.Unlock()
		time.Sleep(endPoll)
	}
}
