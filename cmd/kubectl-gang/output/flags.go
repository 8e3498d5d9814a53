package output

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
)

// The formats that are tables.
const (
	table = "table"
	wide  = "wide"
)

// Flags say how to print.
type Flags struct {
	format    string
	noHeaders bool
	asData    *genericclioptions.JSONYamlPrintFlags
	template  *genericclioptions.KubeTemplatePrintFlags
}

// NewFlags returns flags with their defaults.
func NewFlags() *Flags {
	return &Flags{format: table, asData: genericclioptions.NewJSONYamlPrintFlags(), template: genericclioptions.NewKubeTemplatePrintFlags()}
}

// AddFlags adds them to a command.
func (f *Flags) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.format, "output", "o", f.format, "Output format: "+strings.Join(f.formats(), ", ")+".")
	cmd.Flags().BoolVar(&f.noHeaders, "no-headers", false, "Print tables without headers.")
	f.template.AddFlags(cmd)
	_ = cmd.RegisterFlagCompletionFunc("output", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return f.formats(), cobra.ShellCompDirectiveNoFileComp
	}) // it fails only for a flag that does not exist
}

func (f *Flags) formats() []string {
	return slices.Concat([]string{table, wide}, f.asData.AllowedFormats(), f.template.AllowedFormats())
}

// Printer returns a printer to w.
func (f *Flags) Printer(w io.Writer) (*Printer, error) {
	p := &Printer{out: w}
	switch f.format {
	case "", table, wide:
		p.wide, p.table, p.coloured = f.format == wide, true, printers.AllowsColorOutput(w)
		p.to = printers.NewTablePrinter(printers.PrintOptions{Wide: p.wide, NoHeaders: f.noHeaders})
		p.columns = printers.GetNewTabWriter(&p.lines)
		return p, nil
	}
	to, err := f.asData.ToPrinter(f.format)
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		to, err = f.template.ToPrinter(f.format)
	}
	if genericclioptions.IsNoCompatiblePrinterError(err) {
		return nil, fmt.Errorf("checking --output: %q is none of %s", f.format, strings.Join(f.formats(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("reading --output: %w", err)
	}
	p.to = to
	return p, nil
}
