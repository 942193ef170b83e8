package lua_test

import (
	"sluice/lua"
	"sluice/pipeline"
)

func admitKeys(k pipeline.Keys) lua.AdmitKeys {
	return lua.AdmitKeys{Sale: k.Sale(3, saleID), Buyers: k.Buyers(3, saleID), Orders: k.Orders(3)}
}

const saleID = "drop-1"
