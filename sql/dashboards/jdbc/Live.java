// Queries Loom through DuckDB's JDBC driver and prints the answer: `java -cp duckdb_jdbc.jar Live.java INIT.sql SQL`.
//
// INIT.sql is the result of loom_duckdb.init_sql for this driver's DuckDB; README.md one folder above explains how to write it. Tools with a
// JDBC connection (DBeaver, Spark, Metabase) take the same address and property. The answer is a line of names, then a line for each row,
// with tabs in between.

import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.Properties;
import java.util.StringJoiner;

public class Live {
    public static void main(String[] given) throws SQLException {
        if (given.length != 2) {
            System.err.println("usage: java -cp duckdb_jdbc.jar Live.java INIT.sql SQL");
            System.exit(2);
        }
        Properties options = new Properties();
        options.setProperty("allow_unsigned_extensions", "true");
        try (Connection connection = DriverManager.getConnection("jdbc:duckdb:;session_init_sql_file=" + given[0], options);
                Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(given[1])) {
            int width = rows.getMetaData().getColumnCount();
            StringJoiner names = new StringJoiner("\t");
            for (int i = 1; i <= width; i++) {
                names.add(rows.getMetaData().getColumnName(i));
            }
            System.out.println(names);
            while (rows.next()) {
                StringJoiner row = new StringJoiner("\t");
                for (int i = 1; i <= width; i++) {
                    row.add(String.valueOf(rows.getObject(i)));
                }
                System.out.println(row);
            }
        }
    }
}
