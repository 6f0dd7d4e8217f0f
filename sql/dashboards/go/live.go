// Queries Loom from Go and prints the answer: `go run . INIT.sql SQL`.
//
// INIT.sql is the result of loom_duckdb.init_sql for this module's DuckDB; README.md one folder above explains how to write it. It runs on
// each connection that the pool opens. The answer is a line of names, then a line for each row, with tabs in between.
package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/duckdb/duckdb-go/v2"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run . INIT.sql SQL")
		os.Exit(2)
	}
	if err := answer(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func answer(file, query string) error {
	init, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	connector, err := duckdb.NewConnector("?allow_unsigned_extensions=true", func(connection driver.ExecerContext) error {
		_, err := connection.ExecContext(context.Background(), string(init), nil)
		return err
	})
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	rows, err := db.Query(query)
	if err != nil {
		return err
	}
	defer rows.Close()
	return print(rows)
}

func print(rows *sql.Rows) error {
	names, err := rows.Columns()
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(names, "\t"))
	values := make([]any, len(names))
	places := make([]any, len(names))
	for i := range values {
		places[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(places...); err != nil {
			return err
		}
		texts := make([]string, len(values))
		for i, value := range values {
			if at, ok := value.(time.Time); ok {
				value = at.UTC().Format(time.RFC3339Nano)
			}
			texts[i] = fmt.Sprint(value)
		}
		fmt.Println(strings.Join(texts, "\t"))
	}
	return rows.Err()
}
