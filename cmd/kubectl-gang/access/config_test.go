package access

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// withFlags returns an access by these flags.
func withFlags(t *testing.T, flags ...string) *Access {
	t.Helper()
	a := New(genericiooptions.NewTestIOStreamsDiscard())
	cmd := &cobra.Command{}
	a.AddFlags(cmd)
	must.Succeed(t, cmd.ParseFlags(flags))
	return a
}

// TestKubeconfigIsReadOnce: namespace, cluster and user are from one version of the kubeconfig, which may be a pipe.
func TestKubeconfigIsReadOnce(t *testing.T) {
	config := clientcmdapi.NewConfig()
	config.Clusters["here"] = &clientcmdapi.Cluster{Server: "https://here.example.com"}
	config.Contexts["here"] = &clientcmdapi.Context{Cluster: "here", Namespace: "team-a"}
	config.CurrentContext = "here"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Succeed(t, clientcmd.WriteToFile(*config, file))
	a := withFlags(t, "--kubeconfig", file, "--as", "alice")
	if namespace, err := a.Namespace(false); err != nil || namespace != "team-a" {
		t.Fatalf("namespace %q, error %v", namespace, err)
	}
	must.Succeed(t, os.Remove(file))
	got, err := a.Config()
	if err != nil || got.Host != "https://here.example.com" || got.Impersonate.UserName != "alice" {
		t.Errorf("after the file is gone: %+v, error %v", got, err)
	}
}

// TestImpersonation: --as counts where a config comes without it, as in a pod.
func TestImpersonation(t *testing.T) {
	config := &rest.Config{}
	withFlags(t, "--as", "alice", "--as-group", "team-a").impersonate(config)
	if as := config.Impersonate; as.UserName != "alice" || !slices.Equal(as.Groups, []string{"team-a"}) {
		t.Errorf("it acts as %+v", as)
	}
}

// TestNoKubeconfig: the message says how to name one.
func TestNoKubeconfig(t *testing.T) {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	if _, err := withFlags(t).Config(); err == nil || !strings.Contains(err.Error(), "name one by --kubeconfig") {
		t.Errorf("error %v", err)
	}
}
