package access

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
)

// AddFlags adds the flags to a command and all below it, with completion for those that name something.
func (a *Access) AddFlags(cmd *cobra.Command) {
	flags := cmd.PersistentFlags()
	flags.StringVar(&a.files.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "Path to the kubeconfig file.")
	clientcmd.BindOverrideFlags(&a.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	type names func(*cobra.Command) ([]string, error)
	for flag, names := range map[string]names{"namespace": a.namespaces, "context": a.contexts} {
		_ = cmd.RegisterFlagCompletionFunc(flag,
			func(cmd *cobra.Command, _ []string, begin string) ([]string, cobra.ShellCompDirective) {
				list, err := names(cmd)
				if err != nil {
					return nil, cobra.ShellCompDirectiveError
				}
				return slices.DeleteFunc(list, func(name string) bool { return !strings.HasPrefix(name, begin) }),
					cobra.ShellCompDirectiveNoFileComp
			}) // it fails only for a flag that does not exist
	}
}

func (a *Access) namespaces(cmd *cobra.Command) ([]string, error) {
	var names []string
	err := a.Read(cmd.Context(), &v1.NamespaceList{}, func(object runtime.Object) {
		names = append(names, object.(*v1.Namespace).Name)
	})
	return names, err
}

func (a *Access) contexts(*cobra.Command) ([]string, error) {
	config, err := a.kubeconfig.RawConfig()
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(config.Contexts)), nil
}
