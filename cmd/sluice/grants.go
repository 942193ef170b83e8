package main

import (
	"fmt"

	"sluice/db"
)

type grantsCmd struct {
	API      string `name:"api" default:"sluice_api" placeholder:"ROLE" help:"Role of the api; default sluice_api."`
	Worker   string `default:"sluice_worker" placeholder:"ROLE" help:"Role of the workers; default sluice_worker."`
	Operator string `default:"sluice_operator" placeholder:"ROLE" help:"Role of the command line; default sluice_operator."`
}

// Run prints the script. It asks no server: what is printed is for the owner of the tables to read, and to run.
func (c *grantsCmd) Run(a *app) error {
	script, err := db.GrantsSQL(db.Roles{API: c.API, Worker: c.Worker, Operator: c.Operator})
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]string{"sql": script})
	}
	_, err = fmt.Fprint(a.out, script)
	return err
}
