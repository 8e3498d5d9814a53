package output

import (
	"bytes"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"
)

// Printer prints lists of what was found.
type Printer struct {
	flags    flags
	out      io.Writer
	to       printers.ResourcePrinter
	coloured bool
	// lines are the lines of a table that are about to be written. Its columns stay as wide as they have been, so that
	// what a watch prints stands below what was there before; nil where the output is no table.
	lines   bytes.Buffer
	columns flusher
}

// flusher lays out columns, once Flush says that there are no more lines for now.
type flusher interface {
	io.Writer
	Flush() error
}

// IsTable reports whether the output is a table, for people to read.
func (p *Printer) IsTable() bool { return p.columns != nil }

// IsWide reports whether the table is a wide one.
func (p *Printer) IsWide() bool { return p.flags.format == wide }

// Columns are the columns of a table, and the cells of a row of type T.
type Columns[T any] []Column[T]

// Column is a column of a table.
type Column[T any] struct {
	Name string
	// Wide: the column is shown by -o wide only.
	Wide bool
	// Of is its cell.
	Of func(T) any
}

// Print prints a list: as a table by its columns, and otherwise as an object of the kind, with all that T has.
func Print[T any](p *Printer, kind string, columns Columns[T], items []T) error {
	if !p.IsTable() {
		return p.to.PrintObj(newList(kind, items), p.out)
	}
	t := &metav1.Table{}
	for _, column := range columns {
		definition := metav1.TableColumnDefinition{Name: column.Name, Type: "string"}
		if column.Wide {
			definition.Priority = 1
		}
		t.ColumnDefinitions = append(t.ColumnDefinitions, definition)
	}
	for _, item := range items {
		row := metav1.TableRow{}
		for _, column := range columns {
			row.Cells = append(row.Cells, column.Of(item))
		}
		t.Rows = append(t.Rows, row)
	}
	return p.printTable(t)
}

func (p *Printer) printTable(t *metav1.Table) error {
	if err := p.to.PrintObj(t, p.columns); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if err := p.columns.Flush(); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	text := harmless(p.lines.Bytes())
	if p.coloured {
		text = paint(text)
	}
	if _, err := p.out.Write(text); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	p.lines.Reset()
	return nil
}

// Table prints one of several tables, with columns of its own.
func Table[T any](p *Printer, columns Columns[T], items []T) error {
	one, err := p.flags.printer(p.out)
	if err != nil {
		return err
	}
	return Print(one, "", columns, items)
}
